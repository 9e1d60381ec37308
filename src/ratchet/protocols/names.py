"""Names of protocols, such as `0007-add-login`: each is also a branch, a directory and a part of addresses."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TypeVar

from ratchet.kernel import Conflict, Misuse, is_name, shortened
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import find_protocol, highest_number
from ratchet.projects.clone import Clone, open_clone
from ratchet.runtime import Runtime

HIGHEST_NUMBER = 9999
_NUMBERED = re.compile(r"([0-9]{4})-[a-z0-9]", re.ASCII)
_LONGEST_SLUG = 40
_HINT = "use small letters, digits, dashes, dots and underscores, 64 of them at most, such as 0007-add-login"


def slug_of(description: str) -> str:
    """A short text that says what a protocol is about, made of the first words of its description."""
    plain = unicodedata.normalize("NFKD", description).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word[:_LONGEST_SLUG]
        if len(longer) > _LONGEST_SLUG:
            break
        slug = longer
    return slug or "task"


def numbered(number: int, slug: str) -> str:
    """The name with that number. Raises `Misuse` when there are no numbers left, or for a slug that cannot be used."""
    if not 0 < number <= HIGHEST_NUMBER:
        raise Misuse(
            f"{number} cannot be the number of a protocol: the highest is {HIGHEST_NUMBER}",
            hint="give the protocol a name of your own, or delete branches whose numbers are too high",
        )
    name = f"{number:04d}-{slug}"
    check_name(name)
    return name


def number_of(name: str) -> int | None:
    """The NNNN that a name or a branch begins with; nothing if it does not."""
    found = _NUMBERED.match(name)
    return None if found is None else int(found[1])


def check_name(name: str) -> None:
    """Raise `Misuse` unless `name` is safe as a branch, a directory and a part of an address."""
    if not isinstance(name, str) or not is_name(name) or name.endswith(".lock"):
        raise Misuse(f"a protocol cannot be called {shortened(repr(name), 80)}", hint=_HINT)


def require_number(name: str) -> int:
    """The number of a name that must have one, as that of whatever is planned. Raises `Misuse`."""
    check_name(name)
    number = number_of(name)
    if number is None:
        raise Misuse(
            f"the protocol {name!r} has no number",
            hint="name it NNNN-task, such as 0007-add-login, or leave the name out to be given one",
        )
    return number


FOLDER = ".protocols/"
_TRIES = 10

T = TypeVar("T")


def highest_taken(clone: Clone, base_branch: str) -> int:
    """The highest number that git knows: of branches here and at the remote, and of plans on the base branch.

    It asks the remote, so call it outside of a transaction.
    """
    repository = clone.repository
    base = clone.fetch(base_branch)
    planned = (path for path in repository.list_files(base) if path.startswith(FOLDER))
    return max(
        _highest(path.split("/")[1] for path in planned),
        _highest(name.removeprefix("refs/heads/") for name in repository.refs("refs/heads/")),
        _highest(clone.remote_branches()),
    )


def next_name(tx: Transaction, project_id: int, slug: str, *, above: int = 0) -> str:
    """The next free name, with a number above `above`. No other protocol gets it before the transaction ends.

    A person may still take it for a protocol that they name themselves; adding the protocol then raises `Conflict`.
    """
    tx.lock_keys(f"protocol numbers of project {project_id}")
    number = max(above, highest_number(tx, project_id)) + 1
    while number <= HIGHEST_NUMBER and find_protocol(tx, project_id, numbered(number, slug)) is not None:
        number += 1
    return numbered(number, slug)


def create_described(
    runtime: Runtime,
    project: Project,
    description: str,
    create: Callable[[Transaction, str], T],
    *,
    write: Callable[[], AbstractContextManager[Transaction]],
    base_branch: str | None = None,
    make_clone: bool = True,
) -> T:
    """What `create` makes of the next free number and the first words of a description. It asks the remote.

    Raises `CloneMissing` when the project is not here and may not be brought here, and `RemoteFailed`.
    """
    with open_clone(runtime, project, make=make_clone) as clone:
        above = highest_taken(clone, base_branch or project.base_branch)
    slug = slug_of(description.strip().partition("\n")[0])
    return create_numbered(write, project.id, slug, create, above=above)


def create_numbered(
    write: Callable[[], AbstractContextManager[Transaction]],
    project_id: int,
    slug: str,
    create: Callable[[Transaction, str], T],
    *,
    above: int = 0,
) -> T:
    """What `create` makes of the next free name; it is given another one when that was taken meanwhile."""
    for tries_left in reversed(range(_TRIES)):
        name = ""
        try:
            with write() as tx:
                name = next_name(tx, project_id, slug, above=above)
                return create(tx, name)
        except Conflict:
            if not tries_left or not name or not _is_taken(write, project_id, name):
                raise
    raise AssertionError("the last try returns or raises")


def _is_taken(write: Callable[[], AbstractContextManager[Transaction]], project_id: int, name: str) -> bool:
    with write() as tx:
        return find_protocol(tx, project_id, name) is not None


def _highest(names: Iterable[str]) -> int:
    return max((number_of(name) or 0 for name in names), default=0)
