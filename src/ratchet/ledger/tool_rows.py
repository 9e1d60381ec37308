"""The rows of tools and of their versions, and what every change of them does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa

from ratchet.kernel.semver import Bump
from ratchet.ledger.tables import tools
from ratchet.ledger.transaction import Transaction

FIRST_VERSION = "1.0.0"
NO_CALLS = dict.fromkeys(
    ("calls", "failures", "wall_ms", "cost_microusd", "tokens", "unpriced_tokens", "scored", "score_sum"), 0
)
_REVISIONS = "tools/revisions"


class VersionStatus(StrEnum):
    """A `promoted` version is or was the current one; a `candidate` waits for a verdict, a `refused` one had its."""

    CANDIDATE = "candidate"
    PROMOTED = "promoted"
    REFUSED = "refused"
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True)
class ToolRow:
    """`name` is the tool's id. `current_id` is the version that is called, unless `pinned_id` names another."""

    id: int
    folder: str
    name: str
    source: str
    source_mark: str | None
    source_hash: str | None
    removed: bool
    current_id: int | None
    pinned_id: int | None
    revision: int
    created_at: int
    updated_at: int

    @property
    def called_id(self) -> int | None:
        return self.current_id if self.pinned_id is None else self.pinned_id

    @classmethod
    def of(cls, row: sa.Row[Any]) -> ToolRow:
        return cls(**row._mapping)


@dataclass(frozen=True, slots=True)
class VersionRow:
    """`parent_id` is the version that it was made from, and `origin` says by whom: `file`, `evolved`, `added`, …

    `promoted_at` orders those that were current. It is empty for one that never was, and for one that was taken back.
    The last eight are sums over its calls.
    """

    id: int
    tool_id: int
    version: str
    hash: str
    definition: Any
    change_type: str
    parent_id: int | None
    origin: str
    status: VersionStatus
    reason: str | None
    verdict: Any
    run_id: int | None
    simulated: bool
    created_at: int
    promoted_at: int | None
    calls: int
    failures: int
    wall_ms: float
    cost_microusd: int
    tokens: int
    unpriced_tokens: int
    scored: int
    score_sum: float

    @classmethod
    def of(cls, row: sa.Row[Any]) -> VersionRow:
        return cls(**{**row._mapping, "status": VersionStatus(row.status)})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a definition comes from: a place, a mark by which a change is told, and the hash of what was there."""

    place: str
    mark: str | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A tool with its first version. `version` is the number that it says it has."""

    name: str
    folder: str
    source: Source
    definition: Mapping[str, Any]
    hash: str
    version: str | None = None
    bump: Bump = Bump.PATCH
    origin: str = "file"


class SourceRow(NamedTuple):
    """Where a tool comes from, for whoever looks which of many have changed."""

    folder: str
    name: str
    place: str
    mark: str | None
    removed: bool


class CalledRow(NamedTuple):
    """A tool with the version of it that is called and the sums over its calls, without the definition."""

    tool_id: int
    folder: str
    name: str
    source: str
    pinned_id: int | None
    version_id: int
    version: str
    hash: str
    calls: int
    failures: int
    wall_ms: float
    scored: int
    score_sum: float


def last_revision(tx: Transaction) -> int:
    return tx.connection.execute(sa.select(sa.func.max(tools.c.revision))).scalar() or 0


def next_revision(tx: Transaction) -> int:
    """Held until the end of the transaction, so that a lower revision never appears after a higher one."""
    tx.lock_keys(_REVISIONS)
    return last_revision(tx) + 1


def hold_tool(tx: Transaction, tool_id: int) -> None:
    """Nobody else numbers or moves versions of this tool until the end of the transaction.

    Whoever changes a tool takes the lock of the revisions first, so that nobody waits in a circle.
    """
    tx.lock_keys(_REVISIONS)
    tx.connection.execute(sa.select(tools.c.id).where(tools.c.id == tool_id).with_for_update(key_share=True))


def tell_version(
    tx: Transaction,
    name: str,
    version: str,
    hash: str,
    origin: str,
    bump: Bump,
    *,
    reason: str | None = None,
    run_id: int | None = None,
) -> None:
    told = {"tool": name, "version": version, "hash": hash, "origin": origin, "change_type": bump.value}
    tx.event("tool.version", message=f"{name} {version}", run_id=run_id, data=told | {"reason": reason})


def tell_promoted(
    tx: Transaction,
    name: str,
    before: int | None,
    to: int,
    version: str,
    *,
    reason: str | None = None,
    run_id: int | None = None,
) -> None:
    told = {"tool": name, "from": before, "to": to, "version": version, "reason": reason}
    tx.event("tool.promoted", message=f"{name} {version}", run_id=run_id, data=told)
