"""The rows of tools and their versions: numbered, promoted, refused and taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa

from ratchet.kernel import Conflict, NotFound, StateChanged
from ratchet.kernel.semver import Bump, bumped, parse
from ratchet.ledger.tables import tool_versions, tools
from ratchet.ledger.transaction import Transaction

FIRST_VERSION = "1.0.0"
NO_CALLS = dict.fromkeys(
    ("calls", "failures", "wall_ms", "cost_microusd", "tokens", "unpriced_tokens", "scored", "score_sum"), 0
)
_REVISIONS = "tools/revisions"
DIFFERENCES = "differences"
"""Among the measurements of a verdict: that the version was better, and refused for an answer that differs."""


class ToolVersionStatus(StrEnum):
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
    The eight from `calls` on are sums over its calls. `examples_failed` is `None` until its examples are run.
    """

    id: int
    tool_id: int
    version: str
    hash: str
    definition: Any
    change_type: str
    parent_id: int | None
    origin: str
    status: ToolVersionStatus
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
    examples_failed: int | None

    @property
    def approvable(self) -> bool:
        """Whether it was refused only because it answers some input differently, which a person may want."""
        measured = (self.verdict or {}).get("measurements") or {}
        return self.status is ToolVersionStatus.REFUSED and bool(measured.get(DIFFERENCES))

    @classmethod
    def of(cls, row: sa.Row[Any]) -> VersionRow:
        return cls(**{**row._mapping, "status": ToolVersionStatus(row.status)})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a definition comes from: a place, a mark by which a change is told, and the hash of what was there."""

    place: str
    mark: str | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class ToolDraft:
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
    examples_failed: int | None


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


_CALLED = sa.select(
    tools.c.id,
    tools.c.folder,
    tools.c.name,
    tools.c.source,
    tools.c.pinned_id,
    tool_versions.c.id,
    *(
        tool_versions.c[name]
        for name in (
            *("version", "hash", "calls", "failures", "wall_ms", "scored", "score_sum"),
            "examples_failed",
        )
    ),
).join_from(
    tools, tool_versions, tool_versions.c.id == sa.func.coalesce(tools.c.pinned_id, tools.c.current_id)
)


def add_version(
    tx: Transaction,
    tool: ToolRow,
    definition: Mapping[str, Any],
    hash: str,
    *,
    bump: Bump = Bump.PATCH,
    declared: str | None = None,
    parent_id: int | None = None,
    origin: str = "file",
    reason: str | None = None,
    run_id: int | None = None,
    simulated: bool = False,
) -> VersionRow:
    """Record a definition as a candidate; one that is known already is only returned, whatever became of it.

    Its number is `declared` if that is above every number so far, else the next one after them by `bump`.
    """
    hold_tool(tx, tool.id)
    known = find_version(tx, tool.id, hash)
    if known is not None:
        return known
    newest = list_versions(tx, tool.id, limit=1)
    version = _number(newest[0].version if newest else None, declared, bump)
    row = {
        "tool_id": tool.id,
        "version": version,
        "hash": hash,
        "definition": dict(definition),
        "change_type": bump.value,
        "parent_id": parent_id,
        "origin": origin,
        "status": ToolVersionStatus.CANDIDATE,
        "reason": reason,
        "run_id": run_id,
        "simulated": simulated,
        "created_at": tx.now,
        **NO_CALLS,
    }
    tx.connection.execute(sa.insert(tool_versions).values(**row))
    tell_version(tx, tool.name, version, hash, origin, bump, reason=reason, run_id=run_id)
    found = find_version(tx, tool.id, hash)
    assert found is not None
    return found


def find_version(tx: Transaction, tool_id: int, hash: str) -> VersionRow | None:
    query = sa.select(tool_versions).where(tool_versions.c.tool_id == tool_id, tool_versions.c.hash == hash)
    row = tx.connection.execute(query).one_or_none()
    return None if row is None else VersionRow.of(row)


def get_version(tx: Transaction, version_id: int) -> VersionRow:
    """Raises `NotFound`."""
    found = versions_by_id(tx, [version_id])
    if not found:
        raise NotFound("tool version", version_id)
    return found[version_id]


def versions_by_id(tx: Transaction, ids: Sequence[int]) -> dict[int, VersionRow]:
    """Those that there are, by their numbers."""
    found: dict[int, VersionRow] = {}
    for start in range(0, len(ids), 500):
        query = sa.select(tool_versions).where(tool_versions.c.id.in_(ids[start : start + 500]))
        found |= {row.id: VersionRow.of(row) for row in tx.connection.execute(query)}
    return found


def called_versions(
    tx: Transaction,
    *,
    ids: Sequence[int] | None = None,
    folders: Sequence[str] | None = None,
    after: str = "",
    having: Sequence[str] = (),
    offset: int = 0,
    limit: int | None = None,
) -> list[CalledRow]:
    """The versions that are called of the tools with these ids or of these folders, as far as they are in use.

    Those of folders come by name, from `after` on. `having` are texts that the definition must have, as it is stored.
    """
    query = _CALLED.where(tools.c.removed.is_(False))
    if ids is not None:
        query = query.where(tools.c.id.in_(ids))
    if folders is not None:
        query = query.where(tools.c.folder.in_(folders), tools.c.name > after).order_by(tools.c.name)
    stored = sa.type_coerce(tool_versions.c.definition, sa.Text)
    query = query.where(*(stored.contains(text, autoescape=True) for text in having))
    return [CalledRow(*row) for row in tx.connection.execute(query.offset(offset).limit(limit))]


def version_numbered(tx: Transaction, tool: ToolRow, version: str) -> VersionRow:
    """Raises `NotFound` that says which versions there are."""
    query = sa.select(tool_versions).where(
        tool_versions.c.tool_id == tool.id, tool_versions.c.version == version
    )
    row = tx.connection.execute(query.order_by(tool_versions.c.id.desc()).limit(1)).one_or_none()
    if row is not None:
        return VersionRow.of(row)
    error = NotFound(f"version {version} of tool", tool.name)
    listed = [each.version for each in list_versions(tx, tool.id, limit=20)]
    error.hint = f"there are {', '.join(reversed(listed))}" if listed else "it has no versions"
    raise error


def list_versions(
    tx: Transaction, tool_id: int, *, before: int | None = None, limit: int = 50
) -> list[VersionRow]:
    """Versions of a tool, newest first, with those that were refused."""
    query = sa.select(tool_versions).where(tool_versions.c.tool_id == tool_id)
    if before is not None:
        query = query.where(tool_versions.c.id < before)
    found = tx.connection.execute(query.order_by(tool_versions.c.id.desc()).limit(limit))
    return [VersionRow.of(row) for row in found]


def line_of(tx: Transaction, version: VersionRow, *, limit: int = 10) -> list[VersionRow]:
    """The version itself and those that it came from, one made of the next, as far as `limit`."""
    line = [version]
    while len(line) < limit and line[-1].parent_id is not None:
        line.append(get_version(tx, line[-1].parent_id))
    return line


def promote_version(
    tx: Transaction,
    tool: ToolRow,
    version: VersionRow,
    *,
    expected: int | None,
    reason: str | None = None,
    verdict: Any = None,
    run_id: int | None = None,
) -> None:
    """Let a version be the one that is called, only if `expected` still is. Raises `StateChanged`.

    A pin stays: the pinned version is called until it is taken away.
    """
    _move(tx, tool, version.id, expected)
    last = tx.connection.execute(
        sa.select(sa.func.max(tool_versions.c.promoted_at)).where(
            tool_versions.c.tool_id == tool.id, tool_versions.c.promoted_at.is_not(None)
        )
    ).scalar_one()
    # Clocks differ and two moves may share a millisecond, but the order in which versions were current must not.
    now = tx.now if last is None else max(tx.now, last + 1)
    values: dict[str, Any] = {"status": ToolVersionStatus.PROMOTED, "promoted_at": now, "reason": reason}
    if verdict is not None:
        values["verdict"] = verdict
    _set_version(tx, version.id, **values)
    tell_promoted(tx, tool.name, expected, version.id, version.version, reason=reason, run_id=run_id)


def refuse_version(
    tx: Transaction,
    tool: ToolRow,
    version: VersionRow,
    reason: str,
    *,
    verdict: Any = None,
    run_id: int | None = None,
) -> None:
    """Keep a candidate with the reason why it was not taken. Raises `Conflict` for one that is or was current."""
    refused = tx.connection.execute(
        sa.update(tool_versions)
        .where(
            tool_versions.c.id == version.id,
            tool_versions.c.status.in_([ToolVersionStatus.CANDIDATE, ToolVersionStatus.REFUSED]),
        )
        .values(status=ToolVersionStatus.REFUSED, reason=reason, verdict=verdict)
    )
    if refused.rowcount == 0:
        raise Conflict(
            f"version {version.version} of {tool.name} was promoted; only a candidate can be refused",
            hint=f"`ratchet tool rollback {tool.name}` goes back to the one before it",
        )
    told = {"tool": tool.name, "version": version.version, "hash": version.hash, "reason": reason}
    tx.event("tool.refused", message=f"{tool.name} {version.version}: {reason}", run_id=run_id, data=told)


def roll_back(
    tx: Transaction, tool: ToolRow, *, reason: str | None = None, run_id: int | None = None
) -> VersionRow:
    """Go back to the version that was current before. Raises `Conflict` when there is none."""
    hold_tool(tx, tool.id)
    query = sa.select(tool_versions).where(
        tool_versions.c.tool_id == tool.id,
        tool_versions.c.promoted_at.is_not(None),
        tool_versions.c.id != tool.current_id,
    )
    row = tx.connection.execute(query.order_by(tool_versions.c.promoted_at.desc()).limit(1)).one_or_none()
    if row is None:
        raise Conflict(
            f"tool {tool.name} has no earlier version to go back to",
            hint=f"`ratchet tool show {tool.name}` shows its versions",
        )
    before = VersionRow.of(row)
    _move(tx, tool, before.id, tool.current_id)
    if tool.current_id is not None:
        _set_version(
            tx, tool.current_id, status=ToolVersionStatus.ROLLED_BACK, promoted_at=None, reason=reason
        )
    told = {"tool": tool.name, "from": tool.current_id, "to": before.id, "version": before.version}
    message = f"{tool.name} {before.version}"
    tx.event("tool.rolled_back", message=message, run_id=run_id, data=told | {"reason": reason})
    return before


def note_examples(tx: Transaction, version_id: int, failed: int) -> None:
    """Remember how many of its examples a version fails: one that fails any is broken."""
    _set_version(tx, version_id, examples_failed=failed)


def _number(newest: str | None, declared: str | None, bump: Bump) -> str:
    if newest is None:
        return declared or FIRST_VERSION
    if declared is not None and parse(declared) > parse(newest):
        return declared
    return bumped(newest, bump)


def _move(tx: Transaction, tool: ToolRow, to: int, expected: int | None) -> None:
    where = tools.c.current_id.is_(None) if expected is None else tools.c.current_id == expected
    values = {"current_id": to, "revision": next_revision(tx), "updated_at": tx.now}
    moved = tx.connection.execute(sa.update(tools).where(tools.c.id == tool.id, where).values(**values))
    if moved.rowcount == 0:
        now = tx.connection.execute(sa.select(tools.c.current_id).where(tools.c.id == tool.id)).scalar()
        raise StateChanged("tool", tool.name, (f"at version row {expected}",), f"at version row {now}")


def _set_version(tx: Transaction, version_id: int, **values: Any) -> None:
    tx.connection.execute(sa.update(tool_versions).where(tool_versions.c.id == version_id).values(**values))
