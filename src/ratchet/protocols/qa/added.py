"""The lines that a change brings into a repository."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ratchet.workspaces import Change, Repository


class Line(NamedTuple):
    path: str
    number: int
    text: bytes


def added_lines(repository: Repository, base: str, commit: str, changes: Sequence[Change]) -> Iterator[Line]:
    """Lines of `commit` that none of the changed files had before; one that only moved is not among them.

    Raises `TooLarge` for a file beyond the bounds.
    """
    known: Counter[bytes] = Counter()
    for change in changes:
        if change.before is not None and change.before.is_file:
            known.update(_lines(repository, base, change.path))
    for change in changes:
        if change.after is None or not change.after.is_file:
            continue
        for number, text in enumerate(_lines(repository, commit, change.path), start=1):
            if known[text]:
                known[text] -= 1
            else:
                yield Line(change.path, number, text)


def _lines(repository: Repository, commit: str, path: str) -> list[bytes]:
    return repository.read_file(commit, path).splitlines()
