"""Synchronises the ledger with the definitions that are there. Only those that have changed are read."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.kernel.semver import Bump
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.tools import (
    Source,
    SourceRow,
    ToolDraft,
    add_new_tools,
    add_tool,
    add_version,
    find_tool,
    get_version,
    last_revision,
    list_sources,
    note_source,
    promote_version,
    remove_tool,
)
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.definition_file import ToolError
from ratchet.tools.sources import Offer, Root, offers

# So many tools are written in one transaction, which others wait for.
_BATCH = 200


class DefinitionChange(NamedTuple):
    """`reason` says why it is greater than the definition itself says."""

    bump: Bump
    reason: str | None = None


def change_between(old: Tool | None, new: Tool) -> DefinitionChange:
    """What the definition says, but never less than what the change of its inputs means for those who call it."""
    declared = new.change_type or Bump.PATCH
    if old is None:
        return DefinitionChange(declared)
    broken = _broken(old, new)
    if not broken or declared is Bump.MAJOR:
        return DefinitionChange(declared)
    return DefinitionChange(Bump.MAJOR, f"a major change, not a {declared} one: {'; '.join(broken)}")


def _broken(old: Tool, new: Tool) -> list[str]:
    """What makes calls fail that were right before."""
    before, after = _inputs(old), _inputs(new)
    was_required, is_required = _required(old), _required(new)
    broken = [f"the input {name} is gone" for name in sorted(was_required - after.keys()) if after]
    broken += [f"the input {name} is required now" for name in sorted(is_required - was_required)]
    broken += [
        f"the input {name} is of another type"
        for name in sorted(was_required & before.keys() & after.keys())
        if _type(before[name]) != _type(after[name])
    ]
    if old.type is not new.type:
        broken.append(f"it was of type {old.type} and is of type {new.type}")
    return broken + [
        f"it says so: {each}" for each in new.breaking_changes if each not in old.breaking_changes
    ]


def _inputs(tool: Tool) -> Mapping[str, Any]:
    found = (tool.input_schema or {}).get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(tool: Tool) -> frozenset[str]:
    found = (tool.input_schema or {}).get("required")
    return (
        frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()
    )


def _type(schema: Any) -> Any:
    return schema.get("type") if isinstance(schema, Mapping) else schema


@dataclass(frozen=True, slots=True)
class BrokenDefinition:
    """A definition that cannot be used, and why."""

    name: str
    files: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """The tools that are there: for each the scope in which the ledger has it, and those that cannot be used.

    `marks` are those of all definitions by their places, and `revision` is that of the ledger then. There is none if
    something had to be recorded, or cannot be used: then everything is looked at again.
    """

    scopes: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, BrokenDefinition] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)
    revision: int | None = None

    def is_of(self, offered: Sequence[Offer], revision: int) -> bool:
        """Whether nothing has changed since."""
        return (
            self.revision == revision
            and len(self.marks) == len(offered)
            and all(offer.is_at(self.marks.get(offer.place)) for offer in offered)
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """A definition that has been looked at. Without a tool it is as the ledger has it, or `broken`."""

    offer: Offer
    name: str
    tool: Tool | None = None
    broken: str | None = None


def take_inventory(
    ledger: Ledger, roots: Sequence[Root], servers: frozenset[str], last: Inventory | None = None
) -> Inventory:
    """Look at every definition, and record what has changed. Any number of processes may do so at once.

    `last` is what the same was before: if nothing has changed since, it is the answer.
    """
    host = "" if ledger.path is not None else socket.gethostname()
    scopes = sorted({"", *(root.scope for root in roots)})
    offered = list(offers(roots, host=host))
    with ledger.read() as tx:
        revision = last_revision(tx)
        if last is not None and last.is_of(offered, revision):
            return last
        known = list_sources(tx, scopes)
    by_place = {(row.folder, row.place): row for row in known if not row.removed}
    read = [_read(offer, by_place.get((offer.scope, offer.place))) for offer in offered]
    good, broken = _sorted_out(read)
    changed = [each for each in good if each.tool is not None]
    _record(ledger, changed)
    gone = _gone(known, read, roots, servers, host)
    _remove(ledger, gone)
    names = {each.name: each.offer.scope for each in good}
    files = {each.offer.place for each in read}
    for row in known:
        # What came into the ledger in another way: the tools of an MCP server, and files of other machines.
        if not row.removed and row not in gone and row.place not in files and not _is_mine(row, host):
            names.setdefault(row.name, row.folder)
    is_settled = not (changed or gone or broken)
    return Inventory(names, broken, _marks(read, by_place), revision if is_settled else None)


def record_tool(
    tx: Transaction, tool: Tool, source: Source, *, scope: str = "", origin: str = "file"
) -> None:
    """Let a definition be the one that is called, unless it is the one that was there the last time.

    A better version that came of it meanwhile stays in use: only a definition that has changed comes before it.
    """
    row = find_tool(tx, tool.id, folder=scope)
    if row is not None and row.source_hash == tool.hash:
        note_source(tx, row, source)
        return
    row = add_tool(tx, tool.id, source, folder=scope)
    change = DefinitionChange(tool.change_type or Bump.PATCH)
    if row.current_id is not None:
        current = get_version(tx, row.current_id)
        change = change_between(read_tool(current.definition, folder=None, id=tool.id, stored=True), tool)
    version = add_version(
        tx,
        row,
        tool.data,
        tool.hash,
        bump=change.bump,
        declared=tool.version,
        parent_id=row.current_id,
        origin=origin,
        reason=change.reason,
    )
    if version.id != row.current_id:
        promote_version(tx, row, version, expected=row.current_id, reason=change.reason)


def _marks(read: Sequence[_Read], by_place: Mapping[tuple[str, str], SourceRow]) -> dict[str, str]:
    """What each definition was known by; one that another takes the place of is in no row."""
    found = [(each.offer, by_place.get((each.offer.scope, each.offer.place))) for each in read]
    return {
        offer.place: offer.own_mark if row is None else row.mark or offer.own_mark for offer, row in found
    }


def _read(offer: Offer, row: SourceRow | None) -> _Read:
    if row is not None and offer.is_at(row.mark):
        return _Read(offer, row.name)
    try:
        tool = offer.load()
    except ToolError as error:
        return _Read(offer, row.name if row is not None else offer.name, broken=str(error))
    return _Read(offer, tool.id, tool)


def _sorted_out(read: Sequence[_Read]) -> tuple[list[_Read], dict[str, BrokenDefinition]]:
    """Those that can be used, and those that cannot. Of one id there is one definition, or none that can be used."""
    by_name: dict[str, list[_Read]] = defaultdict(list)
    for each in read:
        by_name[each.name].append(each)
    good, broken = [], {}
    for name, several in by_name.items():
        chosen = [each for each in several if not each.offer.built_in] or several
        files = tuple(each.offer.place for each in chosen)
        wrong = [each.broken for each in chosen if each.broken is not None]
        if len(chosen) > 1:
            reason = f"the id {name} is defined more than once: {' and '.join(files)}"
            broken[name] = BrokenDefinition(name, files, reason)
        elif wrong:
            broken[name] = BrokenDefinition(name, files, wrong[0])
        else:
            good += chosen
    return good, broken


def _record(ledger: Ledger, changed: Sequence[_Read]) -> None:
    for start in range(0, len(changed), _BATCH):
        batch = {(each.offer.scope, each.name): each for each in changed[start : start + _BATCH]}
        with ledger.write() as tx:
            for known in add_new_tools(tx, [_draft(each) for each in batch.values()]):
                tool = batch[known.folder, known.name].tool
                assert tool is not None
                record_tool(tx, tool, known.source, scope=known.folder)


def _draft(read: _Read) -> ToolDraft:
    offer, tool = read.offer, read.tool
    assert tool is not None
    return ToolDraft(
        name=tool.id,
        folder=offer.scope,
        source=Source(offer.place, offer.mark(tool.files), tool.hash),
        definition=tool.data,
        hash=tool.hash,
        version=tool.version,
        bump=tool.change_type or Bump.PATCH,
    )


def _gone(
    known: Sequence[SourceRow],
    read: Sequence[_Read],
    roots: Sequence[Root],
    servers: frozenset[str],
    host: str,
) -> list[SourceRow]:
    """Tools whose definition is no longer there.

    Those of files that cannot be used at the moment stay. So do those of folders that are not looked at here, and those
    of other machines.
    """
    used = {(each.offer.scope, each.name) for each in read}
    return [
        row
        for row in known
        if not row.removed and (row.folder, row.name) not in used and _is_gone(row, roots, servers, host)
    ]


def _is_gone(row: SourceRow, roots: Sequence[Root], servers: frozenset[str], host: str) -> bool:
    if row.place.startswith("mcp:"):
        return row.place.removeprefix("mcp:") not in servers
    if not _is_file(row.place):
        return row.place.startswith(("shipped:", "function:"))
    return _is_mine(row, host) and any(Path(row.place).is_relative_to(root.path) for root in roots)


def _remove(ledger: Ledger, gone: Sequence[SourceRow]) -> None:
    for start in range(0, len(gone), _BATCH):
        with ledger.write() as tx:
            for each in gone[start : start + _BATCH]:
                row = find_tool(tx, each.name, folder=each.folder)
                # Another process may have found it somewhere else meanwhile.
                if row is not None and (row.source, row.source_mark) == (each.place, each.mark):
                    remove_tool(tx, row, reason=f"{each.place} is gone")


def _is_file(place: str) -> bool:
    return Path(place).is_absolute()


def _is_mine(row: SourceRow, host: str) -> bool:
    """Whether it comes from a file of this machine."""
    return _is_file(row.place) and (row.mark or "").startswith(f"{host}:")
