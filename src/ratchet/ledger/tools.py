"""Tools: where they come from, which version is called, and each call as it was measured.

Their versions are in `tool_versions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, NotFound
from ratchet.ledger._columns import to_json
from ratchet.ledger.tables import tool_buffers, tool_calls, tool_starts, tool_versions, tools
from ratchet.ledger.tool_versions import (
    FIRST_VERSION,
    NO_CALLS,
    CalledRow,
    Source,
    SourceRow,
    ToolDraft,
    ToolRow,
    ToolVersionStatus,
    VersionRow,
    add_version,
    called_versions,
    find_version,
    get_version,
    last_revision,
    line_of,
    list_versions,
    next_revision,
    note_examples,
    promote_version,
    refuse_version,
    roll_back,
    tell_promoted,
    tell_version,
    version_numbered,
    versions_by_id,
)
from ratchet.ledger.transaction import Transaction
from ratchet.operations import described

__all__ = [
    "CallRow",
    "CallStats",
    "CalledRow",
    "Source",
    "SourceRow",
    "ToolDraft",
    "ToolRow",
    "ToolVersionStatus",
    "VersionRow",
    "add_new_tools",
    "add_tool",
    "add_version",
    "call_of_step",
    "call_stats",
    "called_versions",
    "calls_of",
    "changed_tools",
    "find_tool",
    "find_version",
    "get_tool",
    "get_version",
    "last_revision",
    "line_of",
    "list_sources",
    "list_tools",
    "list_versions",
    "note_examples",
    "note_source",
    "pin_version",
    "promote_version",
    "record_calls",
    "refuse_version",
    "remove_tool",
    "roll_back",
    "score_call",
    "take_start",
    "tools_by_id",
    "unpin_tool",
    "version_numbered",
    "versions_by_id",
]


def add_tool(tx: Transaction, name: str, source: Source, *, folder: str = "") -> ToolRow:
    """The tool of that name; made when there is none, and back again when it was removed."""
    revision = next_revision(tx)
    found = find_tool(tx, name, folder=folder, removed=True)
    values = {
        "source": source.place,
        "source_mark": source.mark,
        "source_hash": source.hash,
        "removed": False,
        "revision": revision,
        "updated_at": tx.now,
    }
    if found is not None:
        _set_tool(tx, found.id, **values)
    else:
        tx.connection.execute(sa.insert(tools).values(name=name, folder=folder, created_at=tx.now, **values))
    if found is None or found.removed:
        _tell_added(tx, name, source)
    return get_tool(tx, name, folder=folder)


def add_new_tools(tx: Transaction, drafts: Sequence[ToolDraft]) -> list[ToolDraft]:
    """Record those of which nothing is known yet, each with its first version in use, and return the others.

    The same as adding, versioning and promoting one after the other, at a tenth of the cost.
    """
    revision = next_revision(tx)
    query = sa.select(tools.c.folder, tools.c.name).where(tools.c.name.in_([each.name for each in drafts]))
    known = {(row.folder, row.name) for row in tx.connection.execute(query)}
    new = [each for each in drafts if (each.folder, each.name) not in known]
    version_ids: list[int] = []
    if new:
        tool_ids = _insert(tx, tools, [_new_tool(tx, each, revision + at) for at, each in enumerate(new)])
        version_ids = _insert(
            tx, tool_versions, [_new_version(tx, each, id) for each, id in zip(new, tool_ids, strict=True)]
        )
        tx.connection.execute(
            sa.update(tools).where(tools.c.id == sa.bindparam("tool")).values(current_id=sa.bindparam("to")),
            [{"tool": tool, "to": to} for tool, to in zip(tool_ids, version_ids, strict=True)],
        )
    for each, version_id in zip(new, version_ids, strict=True):
        version = each.version or FIRST_VERSION
        _tell_added(tx, each.name, each.source)
        tell_version(tx, each.name, version, each.hash, each.origin, each.bump)
        tell_promoted(tx, each.name, None, version_id, version)
    return [each for each in drafts if (each.folder, each.name) in known]


def find_tool(tx: Transaction, name: str, *, folder: str = "", removed: bool = False) -> ToolRow | None:
    query = sa.select(tools).where(tools.c.folder == folder, tools.c.name == name)
    row = tx.connection.execute(query).one_or_none()
    return None if row is None or (row.removed and not removed) else ToolRow.of(row)


def get_tool(tx: Transaction, name: str, *, folder: str = "") -> ToolRow:
    """Raises `NotFound`."""
    found = find_tool(tx, name, folder=folder)
    if found is None:
        raise NotFound("tool", name)
    return found


def list_tools(
    tx: Transaction,
    *,
    folders: Sequence[str] = ("",),
    after: str = "",
    limit: int | None = None,
    removed: bool = False,
) -> list[ToolRow]:
    """The tools of these folders by their names."""
    query = sa.select(tools).where(tools.c.folder.in_(folders), tools.c.name > after)
    if not removed:
        query = query.where(tools.c.removed.is_(False))
    return [ToolRow.of(row) for row in tx.connection.execute(query.order_by(tools.c.name).limit(limit))]


def list_sources(tx: Transaction, folders: Sequence[str]) -> list[SourceRow]:
    """The sources of all tools of these folders, removed ones too."""
    columns = (tools.c.folder, tools.c.name, tools.c.source, tools.c.source_mark, tools.c.removed)
    query = sa.select(*columns).where(tools.c.folder.in_(folders))
    return [SourceRow(*row) for row in tx.connection.execute(query)]


def changed_tools(tx: Transaction, *, after: int, limit: int) -> list[ToolRow]:
    """The tools, removed ones too, that have changed since revision `after`, in the order of their changes."""
    query = sa.select(tools).where(tools.c.revision > after).order_by(tools.c.revision).limit(limit)
    return [ToolRow.of(row) for row in tx.connection.execute(query)]


def note_source(tx: Transaction, tool: ToolRow, source: Source) -> None:
    """Remember where the definition was read and when it changed. The tool is as it was."""
    _set_tool(tx, tool.id, source=source.place, source_mark=source.mark, source_hash=source.hash)


def remove_tool(tx: Transaction, tool: ToolRow, *, reason: str | None = None) -> None:
    """Take a tool out of use. Its versions and calls stay, and it may come back."""
    _change_tool(tx, tool.id, removed=True, source_mark=None)
    tx.event("tool.removed", message=tool.name, data={"tool": tool.name, "reason": reason})


def pin_version(tx: Transaction, tool: ToolRow, version: VersionRow) -> None:
    """Let this version be called whatever is promoted meanwhile. Raises `Conflict` for one that was refused."""
    if version.status is ToolVersionStatus.REFUSED:
        raise Conflict(
            f"version {version.version} of {tool.name} was refused: {version.reason}",
            hint="pin a version that was promoted",
        )
    _change_tool(tx, tool.id, pinned_id=version.id)
    told = {"tool": tool.name, "version": version.version}
    tx.event("tool.pinned", message=f"{tool.name} {version.version}", data=told)


def unpin_tool(tx: Transaction, tool: ToolRow) -> None:
    """Let the tool follow what is promoted again. Nothing happens to one that is not pinned."""
    if tool.pinned_id is not None:
        _change_tool(tx, tool.id, pinned_id=None)
        tx.event("tool.unpinned", message=tool.name, data={"tool": tool.name})


def tools_by_id(tx: Transaction, ids: Sequence[int]) -> dict[int, ToolRow]:
    """The tools with these numbers that are in use."""
    query = sa.select(tools).where(tools.c.id.in_(ids), tools.c.removed.is_(False))
    return {row.id: ToolRow.of(row) for row in tx.connection.execute(query)}


def _new_tool(tx: Transaction, draft: ToolDraft, revision: int) -> dict[str, Any]:
    return {
        "folder": draft.folder,
        "name": draft.name,
        "source": draft.source.place,
        "source_mark": draft.source.mark,
        "source_hash": draft.source.hash,
        "removed": False,
        "revision": revision,
        "created_at": tx.now,
        "updated_at": tx.now,
    }


def _new_version(tx: Transaction, draft: ToolDraft, tool_id: int) -> dict[str, Any]:
    return {
        "tool_id": tool_id,
        "version": draft.version or FIRST_VERSION,
        "hash": draft.hash,
        "definition": dict(draft.definition),
        "change_type": draft.bump.value,
        "origin": draft.origin,
        "status": ToolVersionStatus.PROMOTED,
        "simulated": False,
        "created_at": tx.now,
        "promoted_at": tx.now,
        **NO_CALLS,
    }


def _insert(tx: Transaction, table: sa.Table, rows: list[dict[str, Any]]) -> list[int]:
    """The numbers of the rows, in their order."""
    statement = sa.insert(table).returning(table.c.id, sort_by_parameter_order=True)
    return list(tx.connection.execute(statement, rows).scalars())


def _tell_added(tx: Transaction, name: str, source: Source) -> None:
    tx.event("tool.added", message=name, data={"tool": name, "source": source.place})


def _change_tool(tx: Transaction, tool_id: int, **values: Any) -> None:
    _set_tool(tx, tool_id, revision=next_revision(tx), updated_at=tx.now, **values)


def _set_tool(tx: Transaction, tool_id: int, **values: Any) -> None:
    tx.connection.execute(sa.update(tools).where(tools.c.id == tool_id).values(**values))


# Larger inputs and outputs are not kept with a call.
KEPT_BYTES = 16 * 1024
_HOUR_MS = 3_600_000
_BATCH = 500


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call of a version of a tool. Inputs and outputs that are too large to be kept are `None`."""

    tool_id: int
    version_id: int
    ok: bool
    wall_ms: float
    at: int
    error: str | None = None
    cpu_ms: float | None = None
    peak_bytes: int | None = None
    cost_microusd: int = 0
    tokens: int = 0
    unpriced_tokens: int = 0
    score: float | None = None
    input: Any = None
    output: Any = None
    run_id: int | None = None
    step: str | None = None
    simulated: bool = False
    id: int | None = None
    """Given by the ledger."""


@dataclass(frozen=True, slots=True)
class CallStats:
    """How a version fares. The first six and the mean score are over all its calls, the others over the last few.

    `recent` says how many those are. Calls of simulations count nowhere. What was never measured is `None`. What
    `unpriced_tokens` cost nobody knows: it is not in the costs.
    """

    runs: int
    failures: int
    mean_wall_ms: float | None
    cost_microusd: int = field(metadata=described("what is known of the cost"))
    tokens: int
    unpriced_tokens: int = field(metadata=described("those of unknown price; their cost comes on top"))
    mean_score: float | None
    recent: int
    recent_success_rate: float | None
    recent_wall_ms: float | None
    recent_p95_ms: float | None
    recent_peak_bytes: int | None
    recent_cost_microusd: float | None
    recent_score: float | None
    success_rate: float | None = field(init=False)

    def __post_init__(self) -> None:
        rate = None if self.runs == 0 else (self.runs - self.failures) / self.runs
        object.__setattr__(self, "success_rate", rate)


def record_calls(tx: Transaction, rows: Sequence[CallRow]) -> None:
    """Write calls down, and add them to the sums of their versions."""
    for start in range(0, len(rows), _BATCH):
        tx.connection.execute(sa.insert(tool_calls), [_values(row) for row in rows[start : start + _BATCH]])
    # In the order of their numbers, so that two who record at once never wait for each other.
    for version_id in sorted({row.version_id for row in rows if not row.simulated}):
        _add_up(tx, version_id, [row for row in rows if row.version_id == version_id and not row.simulated])


def calls_of(
    tx: Transaction, version_id: int, *, limit: int = 100, before: int | None = None
) -> list[CallRow]:
    """Calls of a version, newest first."""
    query = sa.select(tool_calls).where(tool_calls.c.version_id == version_id)
    if before is not None:
        query = query.where(tool_calls.c.id < before)
    found = tx.connection.execute(query.order_by(tool_calls.c.id.desc()).limit(limit))
    return [CallRow(**row._mapping) for row in found]


def calls_of_tool(tx: Transaction, tool_id: int, *, limit: int = 100) -> list[CallRow]:
    """Calls of all versions of a tool, newest first."""
    query = sa.select(tool_calls).where(tool_calls.c.tool_id == tool_id)
    order = (tool_calls.c.at.desc(), tool_calls.c.id.desc())
    return [CallRow(**row._mapping) for row in tx.connection.execute(query.order_by(*order).limit(limit))]


def call_of_step(tx: Transaction, run_id: int, step: str) -> CallRow | None:
    """The last call that a step of a run made."""
    mine = (tool_calls.c.run_id == run_id, tool_calls.c.step == step)
    query = sa.select(tool_calls).where(*mine).order_by(tool_calls.c.id.desc()).limit(1)
    row = tx.connection.execute(query).one_or_none()
    return None if row is None else CallRow(**row._mapping)


def score_call(tx: Transaction, call_id: int, score: float) -> None:
    """Say how good a call was, from 0 to 1. A later word replaces an earlier one."""
    query = sa.select(tool_calls.c.version_id, tool_calls.c.score, tool_calls.c.simulated)
    row = tx.connection.execute(query.where(tool_calls.c.id == call_id)).one()
    tx.connection.execute(sa.update(tool_calls).where(tool_calls.c.id == call_id).values(score=score))
    if row.simulated:
        return
    change = {
        "scored": tool_versions.c.scored + (1 if row.score is None else 0),
        "score_sum": tool_versions.c.score_sum + score - (row.score or 0.0),
    }
    tx.connection.execute(
        sa.update(tool_versions).where(tool_versions.c.id == row.version_id).values(**change)
    )


def call_stats(tx: Transaction, version_id: int, *, last: int = 100) -> CallStats:
    """How a version fares. However long its history is, only the `last` calls of it are read."""
    names = (
        "calls",
        "failures",
        "wall_ms",
        "cost_microusd",
        "tokens",
        "unpriced_tokens",
        "scored",
        "score_sum",
    )
    sums = tx.connection.execute(
        sa.select(*(tool_versions.c[name] for name in names)).where(tool_versions.c.id == version_id)
    ).one()
    measured = ("ok", "wall_ms", "peak_bytes", "cost_microusd", "score", "simulated")
    query = sa.select(*(tool_calls.c[name] for name in measured)).where(tool_calls.c.version_id == version_id)
    found = tx.connection.execute(query.order_by(tool_calls.c.id.desc()).limit(last)).all()
    recent = [row for row in found if not row.simulated]
    return CallStats(
        runs=sums.calls,
        failures=sums.failures,
        mean_wall_ms=sums.wall_ms / sums.calls if sums.calls else None,
        cost_microusd=sums.cost_microusd,
        tokens=sums.tokens,
        unpriced_tokens=sums.unpriced_tokens,
        mean_score=sums.score_sum / sums.scored if sums.scored else None,
        recent=len(recent),
        recent_success_rate=_mean(float(row.ok) for row in recent),
        recent_wall_ms=_mean(row.wall_ms for row in recent),
        recent_p95_ms=_p95([row.wall_ms for row in recent]),
        recent_peak_bytes=max((row.peak_bytes for row in recent if row.peak_bytes is not None), default=None),
        recent_cost_microusd=_mean(row.cost_microusd for row in recent),
        recent_score=_mean(row.score for row in recent if row.score is not None),
    )


def take_start(tx: Transaction, tool_id: int, per_hour: int, now: int) -> int | None:
    """Note that the tool is about to be called, if it was started fewer than `per_hour` times within the last hour.

    Otherwise nothing is noted, and the answer is when it may be started again (ms). Of several callers at once each
    waits for the one before. What is older than an hour is deleted, so that the cost follows the limit, not history.
    """
    held = sa.select(tools.c.id).where(tools.c.id == tool_id).with_for_update(key_share=True)
    tx.connection.execute(held)
    mine = tool_starts.c.tool_id == tool_id
    tx.connection.execute(sa.delete(tool_starts).where(mine, tool_starts.c.at <= now - _HOUR_MS))
    query = sa.select(tool_starts.c.at).where(mine).order_by(tool_starts.c.at.desc())
    full = tx.connection.execute(query.offset(per_hour - 1).limit(1)).scalar()
    if full is not None:
        return int(full) + _HOUR_MS
    tx.connection.execute(sa.insert(tool_starts).values(tool_id=tool_id, at=now))
    return None


def _values(row: CallRow) -> dict[str, Any]:
    values = {column.name: getattr(row, column.name) for column in tool_calls.columns if column.name != "id"}
    return values | {"input": _small(row.input), "output": _small(row.output)}


def _small(value: Any) -> Any:
    return value if value is not None and len(to_json(value)) <= KEPT_BYTES else None


def _add_up(tx: Transaction, version_id: int, rows: Sequence[CallRow]) -> None:
    scores = [row.score for row in rows if row.score is not None]
    columns = tool_versions.c
    tx.connection.execute(
        sa.update(tool_versions)
        .where(columns.id == version_id)
        .values(
            calls=columns.calls + len(rows),
            failures=columns.failures + sum(not row.ok for row in rows),
            wall_ms=columns.wall_ms + sum(row.wall_ms for row in rows),
            cost_microusd=columns.cost_microusd + sum(row.cost_microusd for row in rows),
            tokens=columns.tokens + sum(row.tokens for row in rows),
            unpriced_tokens=columns.unpriced_tokens + sum(row.unpriced_tokens for row in rows),
            scored=columns.scored + len(scores),
            score_sum=columns.score_sum + sum(scores),
        )
    )


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _p95(values: list[float]) -> float | None:
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)] if values else None


@dataclass(frozen=True, slots=True)
class Buffered:
    """How many values lie in a buffer after a write; `flushed` are those that it gave back by it, oldest first."""

    count: int
    flushed: tuple[Any, ...] | None = None


def add_to_buffer(
    tx: Transaction, name: str, value: Any, *, most: int, seconds: float | None = None
) -> Buffered:
    """Add a value. A buffer that is full by it, or whose oldest value is `seconds` old, is emptied and given back."""
    tx.lock_keys(f"buffer:{name}")
    tx.connection.execute(sa.insert(tool_buffers).values(name=name, value=value, at=tx.now))
    count, oldest = tx.connection.execute(
        sa.select(sa.func.count(), sa.func.min(tool_buffers.c.at)).where(tool_buffers.c.name == name)
    ).one()
    if count < most and (seconds is None or tx.now - oldest < seconds * 1000):
        return Buffered(count)
    return Buffered(0, flush_buffer(tx, name))


def flush_buffer(tx: Transaction, name: str) -> tuple[Any, ...]:
    """Empty a buffer; what was in it, oldest first."""
    tx.lock_keys(f"buffer:{name}")
    mine = tool_buffers.c.name == name
    query = sa.select(tool_buffers.c.value).where(mine).order_by(tool_buffers.c.id)
    values = tuple(tx.connection.execute(query).scalars())
    tx.connection.execute(sa.delete(tool_buffers).where(mine))
    return values


def count_buffered(tx: Transaction, name: str) -> int:
    query = sa.select(sa.func.count()).select_from(tool_buffers).where(tool_buffers.c.name == name)
    return int(tx.connection.execute(query).scalar_one())
