"""The tools that can be used here: found, versioned, pinned and chosen."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.kernel import Conflict, Misuse, NotFound
from ratchet.ledger import Ledger, Transaction, to_json
from ratchet.ledger.tools import (
    CalledRow,
    Source,
    ToolRow,
    ToolVersionStatus,
    VersionRow,
    called_versions,
    find_tool,
    get_version,
    list_tools,
    pin_version,
    remove_tool,
    unpin_tool,
    version_numbered,
    versions_by_id,
)
from ratchet.tools.definition import Tool, full_name, read_name, read_tool
from ratchet.tools.sources import FOLDER_NAME, roots_of
from ratchet.tools.sync import BrokenDefinition, Inventory, record_tool, take_inventory

if TYPE_CHECKING:
    from ratchet.config import Settings
    from ratchet.ledger import Ledger, Transaction
    from ratchet.memory import Memory
    from ratchet.tools.definition import Tool, ToolType
    from ratchet.tools.search import ToolChoice

# So many are read at once when some are looked for.
_BATCH = 200


class StoredTools:
    """Definitions never change, so each is read once. Any thread may use it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._read: dict[tuple[int, str], Tool] = {}

    def of(self, rows: Sequence[CalledRow], tx: Transaction | None = None) -> Mapping[int, Tool]:
        """The tools of these rows, by the numbers of their versions; read in `tx`, if the caller has one open."""
        missing = [row.version_id for row in rows if (row.version_id, row.source) not in self._read]
        found: Mapping[int, VersionRow] = {}
        if missing:
            with self._ledger.read() if tx is None else contextlib.nullcontext(tx) as opened:
                found = versions_by_id(opened, missing)
        return {
            row.version_id: self._read.get((row.version_id, row.source))
            or self.read(found[row.version_id], row.source)
            for row in rows
        }

    def read(self, version: VersionRow, source: str) -> Tool:
        """The tool of a version; its folder is that of the file from which its tool comes."""
        tool = self._read.get((version.id, source))
        if tool is None:
            tool = read_tool(version.definition, folder=None, stored=True)
            if Path(source).is_absolute():
                tool = dataclasses.replace(tool, folder=Path(source).parent)
            self._read[version.id, source] = tool
        return tool


@dataclass(frozen=True)
class ToolVersion:
    """One version of a tool, as it is called. `id` is the row of the version, `tool_id` that of the tool.

    `source` is the file that the tool comes from, or another place such as `shipped:word_count.yaml`. `folder` is that
    of the workflow that it belongs to, and empty for one that is known everywhere. `examples_failed` is `None`
    until its examples are run.
    """

    id: int
    tool_id: int
    name: str
    version: str
    hash: str
    tool: Tool
    source: str
    folder: str = ""
    pinned: bool = False
    examples_failed: int | None = None

    @property
    def broken(self) -> str | None:
        """That it fails its own examples, in words, if it does."""
        checked = sum(example.checked for example in self.tool.examples)
        return f"fails {self.examples_failed} of {checked} examples" if self.examples_failed else None


# Inside the class `list` is its method.
Versions = list[ToolVersion]
if TYPE_CHECKING:
    Choices = list[ToolChoice]


def open_toolbox(
    ledger: Ledger,
    settings: Settings,
    home: Path,
    *,
    folders: Sequence[Path] = (),
    earlier: Toolbox | None = None,
) -> Toolbox:
    """The tools that come with Ratchet, those of the home and of the settings, and those in `tools` of `folders`.

    What has changed since the last time is recorded; the rest is only looked at. `earlier` is the same toolbox as it
    was opened before, closed by now or not: what it has read of the ledger is not read again.
    """
    toolbox = Toolbox(ledger, settings, home, folders)
    if earlier is not None:
        toolbox.take_over(earlier)
    toolbox.sync()
    return toolbox


class Toolbox:
    """One process's view of the tools. Any thread may use it.

    What is asked for is read from the ledger each time, so that a version that another process promotes is used at
    once; files that have changed count from the next `sync`.
    """

    def __init__(self, ledger: Ledger, settings: Settings, home: Path, folders: Sequence[Path]) -> None:
        self._ledger = ledger
        self._settings = settings
        self._home = home
        self._roots = roots_of(settings, home, folders)
        self._scopes = sorted({"", *(root.scope for root in self._roots)})
        self._inventory = Inventory()
        self._stored = StoredTools(ledger)
        self._memory: Memory | None = None

    @property
    def broken(self) -> Iterable[BrokenDefinition]:
        """The definitions that cannot be used, by their ids."""
        return [found for _, found in sorted(self._inventory.broken.items())]

    def sync(self) -> None:
        """Look at the definitions again."""
        servers = frozenset(self._settings.tools.mcp if self._settings.sets("tools") else ())
        self._inventory = take_inventory(self._ledger, self._roots, servers, self._inventory)

    def take_over(self, earlier: Toolbox) -> None:
        """Begin with what another toolbox of the same places knows."""
        if (earlier._ledger, earlier._roots) == (self._ledger, self._roots):
            self._inventory, self._stored = earlier._inventory, earlier._stored

    def get(self, tool_id: str, version: str | None = None) -> ToolVersion:
        """The version of a tool that is to be called: the pinned one, else the current one.

        `WORKFLOW/TOOL` is one that a workflow brings with it; it is known from its first run on.
        Raises `NotFound` with ids that are near or the versions that there are, `Misuse` when its definition cannot be
        used, and `Conflict` when it is pinned at another version than the one asked for.
        """
        with self._ledger.read() as tx:
            row = self._row(tx, tool_id)
            if version is None:
                found = _called(tx, row)
            else:
                found = version_numbered(tx, row, version)
                _require_usable(tx, row, found)
        if row.pinned_id is None:
            self._require_sound(tool_id)
        return ToolVersion(
            id=found.id,
            tool_id=row.id,
            name=full_name(row.name, row.folder),
            version=found.version,
            hash=found.hash,
            tool=self._stored.read(found, row.source),
            source=row.source,
            folder=row.folder,
            pinned=row.pinned_id is not None,
            examples_failed=found.examples_failed,
        )

    def list(self) -> Versions:
        """Every tool that can be used, in the version that is called, by its id."""
        with self._ledger.read() as tx:
            rows = list(filter(self._knows, called_versions(tx, folders=self._scopes)))
        tools = self._stored.of(rows)
        return [_version(row, tools[row.version_id]) for row in rows]

    def page(
        self, *, after: str = "", limit: int = 50, type: ToolType | None = None, tag: str | None = None
    ) -> Versions:
        """The next tools by their ids, of a type and with a tag if these are given. No others are read."""
        having = [f'"type":{to_json(type)}'] if type is not None else []
        having += [to_json(tag)] if tag is not None else []
        found: Versions = []
        with self._ledger.read() as tx:
            for offset in itertools.count(0, _BATCH):
                rows = called_versions(
                    tx, folders=self._scopes, after=after, having=having, offset=offset, limit=_BATCH
                )
                known = list(filter(self._knows, rows))
                tools = self._stored.of(known, tx)
                listed = [_version(row, tools[row.version_id]) for row in known]
                found += [each for each in listed if _is_wanted(each.tool, type, tag)]
                if len(found) >= limit or len(rows) < _BATCH:
                    return found[:limit]
        return found

    def search(
        self, text: str, limit: int = 5, *, type: ToolType | None = None, tags: Sequence[str] = ()
    ) -> Choices:
        """The tools that fit a task best, best first, each with the reasons why."""
        # Loaded here, as is memory: finding by meaning is the slow part, and most of what uses tools names them.
        from ratchet.tools.search import ToolChoice, candidates, catch_up, fitness_of, opinions, worth_showing

        memory = self._open_memory()
        catch_up(self._ledger, memory)
        near = candidates(self._ledger, memory, text, folders=self._scopes, type=type, tags=tags)
        near = [each for each in near if self._knows(each.row)]
        tools, said = self._stored.of([row for row, _ in near]), opinions(memory, text)
        best = max((likeness for _, likeness in near), default=0.0)
        chosen = []
        for row, likeness in near:
            tool = tools[row.version_id]
            parts = fitness_of(tool, likeness, row, said.get(row.name, ()), best=best)
            fitness = sum(part.points for part in parts)
            if tool.refusal is None and worth_showing(likeness, fitness):
                chosen.append(ToolChoice(_version(row, tool), likeness, fitness, parts))
        chosen.sort(key=lambda choice: (-choice.fitness, choice.tool.id))
        return chosen[:limit]

    def record_feedback(self, tool_id: str, good: bool, text: str) -> None:
        """Say whether a tool served for the task in `text`. It counts when tools for like tasks are chosen."""
        if self.get(tool_id).name not in self._inventory.scopes:
            raise Misuse(
                f"tool {tool_id} belongs to its workflow and is not searched for",
                hint="`ratchet tool add --from-run RUN` puts it among all others",
            )
        from ratchet.tools.search import record_opinion

        record_opinion(self._open_memory(), tool_id, good, text)

    def add(self, tool: Tool | Path, *, replace: bool = False) -> ToolVersion:
        """Put a definition into the home, with the files that it names. Raises `Conflict` when the id is taken.

        With `replace` it takes the place of the one that the home has.
        """
        from ratchet.tools.sources import install

        self.sync()
        made = install(tool, self._home / FOLDER_NAME, taken=self._places(), replace=replace)
        self.sync()
        return self.get(made)

    def take_server_tools(self, server: str, listed: Sequence[Tool]) -> Versions:
        """Remember which tools an MCP server has; those that it no longer has are removed."""
        source = f"mcp:{server}"
        with self._ledger.write() as tx:
            for each in listed:
                record_tool(tx, each, Source(source, hash=each.hash), origin="mcp")
            kept = {each.id for each in listed}
            for row in list_tools(tx):
                if row.source == source and row.name not in kept:
                    remove_tool(tx, row, reason=f"{server} does not have it any more")
        self.sync()
        return [self.get(each.id) for each in listed]

    def pin(self, tool_id: str, version: str) -> ToolVersion:
        """Call this version from now on, whatever is promoted."""
        with self._ledger.write() as tx:
            row = self._row(tx, tool_id)
            pin_version(tx, row, version_numbered(tx, row, version))
        return self.get(tool_id)

    def unpin(self, tool_id: str) -> ToolVersion:
        """Call the current version again."""
        with self._ledger.write() as tx:
            unpin_tool(tx, self._row(tx, tool_id))
        return self.get(tool_id)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _open_memory(self) -> Memory:
        if self._memory is None:
            from ratchet.memory import open_memory

            self._memory = open_memory(self._settings.memory, self._home)
        return self._memory

    def _knows(self, row: CalledRow) -> bool:
        """Whether the definition of a tool is one of those that this toolbox has."""
        return self._inventory.scopes.get(row.name) == row.folder

    def _row(self, tx: Transaction, tool_id: str) -> ToolRow:
        own, folder = read_name(tool_id)
        row = find_tool(tx, own, folder=folder or self._inventory.scopes.get(tool_id, ""))
        if row is None:
            self._require_sound(tool_id)
            raise self._not_found(tool_id)
        return row

    def _not_found(self, tool_id: str) -> NotFound:
        import difflib

        error = NotFound("tool", tool_id)
        near = difflib.get_close_matches(tool_id, self._inventory.scopes, n=3, cutoff=0.5)
        error.hint = (
            f"did you mean {' or '.join(near)}?" if near else "`ratchet tool list` shows those there are"
        )
        return error

    def _require_sound(self, tool_id: str) -> None:
        broken = self._inventory.broken.get(tool_id)
        if broken is not None:
            raise Misuse(
                f"tool {tool_id} cannot be used: {broken.reason}",
                hint=f"correct {' or '.join(broken.files)}",
            )

    def _places(self) -> dict[str, str]:
        """Where the definition of each id lies that is taken."""
        with self._ledger.read() as tx:
            found = {row.name: row.source for row in called_versions(tx, folders=self._scopes)}
        return found | {name: broken.files[0] for name, broken in self._inventory.broken.items()}


def _called(tx: Transaction, row: ToolRow) -> VersionRow:
    if row.called_id is None:
        raise NotFound("version of tool", row.name)
    return get_version(tx, row.called_id)


def _require_usable(tx: Transaction, row: ToolRow, wanted: VersionRow) -> None:
    if row.pinned_id is not None and row.pinned_id != wanted.id:
        pinned = get_version(tx, row.pinned_id)
        raise Conflict(
            f"tool {row.name} is pinned at {pinned.version}, so {wanted.version} is not used",
            hint=f"`ratchet tool unpin {full_name(row.name, row.folder)}` lets it go",
        )
    if wanted.status is ToolVersionStatus.REFUSED:
        raise Conflict(
            f"version {wanted.version} of tool {row.name} was refused: {wanted.reason}",
            hint=f"`ratchet tool show {row.name}` shows the others",
        )


def _is_wanted(tool: Tool, type: ToolType | None, tag: str | None) -> bool:
    return type in (None, tool.type) and (tag is None or tag in tool.tags)


def _version(row: CalledRow, tool: Tool) -> ToolVersion:
    return ToolVersion(
        id=row.version_id,
        tool_id=row.tool_id,
        name=row.name,
        version=row.version,
        hash=row.hash,
        tool=tool,
        source=row.source,
        folder=row.folder,
        pinned=row.pinned_id is not None,
        examples_failed=row.examples_failed,
    )
