"""Tools: where they come from, and which version is called.

Their versions are in `tool_versions`, what their calls came to is in `tool_calls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, NotFound
from ratchet.ledger.tables import tool_versions, tools
from ratchet.ledger.tool_calls import CallRow, CallStats, call_stats, calls_of, record_calls, take_start
from ratchet.ledger.tool_rows import (
    FIRST_VERSION,
    NO_CALLS,
    CalledRow,
    Draft,
    Source,
    SourceRow,
    ToolRow,
    VersionRow,
    VersionStatus,
    last_revision,
    next_revision,
    tell_promoted,
    tell_version,
)
from ratchet.ledger.tool_versions import (
    add_version,
    called_versions,
    find_version,
    get_version,
    line_of,
    list_versions,
    promote_version,
    refuse_version,
    roll_back,
    version_numbered,
    versions_by_id,
)
from ratchet.ledger.transaction import Transaction

__all__ = [
    "CallRow",
    "CallStats",
    "CalledRow",
    "Draft",
    "Source",
    "SourceRow",
    "ToolRow",
    "VersionRow",
    "VersionStatus",
    "add_new_tools",
    "add_tool",
    "add_version",
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
    "note_source",
    "pin_version",
    "promote_version",
    "record_calls",
    "refuse_version",
    "remove_tool",
    "roll_back",
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


def add_new_tools(tx: Transaction, drafts: Sequence[Draft]) -> list[Draft]:
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
    if version.status is VersionStatus.REFUSED:
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


def _new_tool(tx: Transaction, draft: Draft, revision: int) -> dict[str, Any]:
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


def _new_version(tx: Transaction, draft: Draft, tool_id: int) -> dict[str, Any]:
    return {
        "tool_id": tool_id,
        "version": draft.version or FIRST_VERSION,
        "hash": draft.hash,
        "definition": dict(draft.definition),
        "change_type": draft.bump.value,
        "origin": draft.origin,
        "status": VersionStatus.PROMOTED,
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
