"""Giving a protocol the next number that nobody has: not the ledger, not the base branch, not a branch anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TypeVar

from ratchet.kernel import Conflict
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import find_protocol, highest_number
from ratchet.projects.clone import Clone, open_clone
from ratchet.protocols.naming import HIGHEST_NUMBER, number_of, numbered, slug_of
from ratchet.runtime import Runtime

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
    """The next free name, with a number above `above`. Nobody else is given it before the transaction ends.

    Somebody may still take it for a protocol that they name themselves; adding the protocol then raises `Conflict`.
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
    """What `create` makes of the next free name; it is given another one when somebody has taken that meanwhile."""
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
