"""Finding tools by what they are for, and saying why each was chosen."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.ledger import Ledger
from ratchet.ledger.tools import (
    CalledRow,
    ToolRow,
    VersionRow,
    called_versions,
    changed_tools,
    last_revision,
    versions_by_id,
)
from ratchet.memory import Found, Memory
from ratchet.memory.terms import indexed
from ratchet.tools.definition import ToolType
from ratchet.tools.fitness import Opinion, Part

if TYPE_CHECKING:
    from ratchet.tools.definition import Tool
    from ratchet.tools.registry import ToolVersion

KIND = "tool"
FEEDBACK = "feedback"
_STAMP = "tool-index"
# So many of the nearest are weighed; what is less like the task than all of them has little to gain by its other parts.
_WEIGHED = 50
_OPINIONS = 200
_ALIKE = 0.3
_BATCH = 200
_MOST_TAGS = 90
_LONGEST_TAG = 200


@dataclass(frozen=True)
class Choice:
    """A tool that may serve. `fitness` is the sum of `parts`, and `why` says them in words."""

    version: ToolVersion
    likeness: float
    fitness: float
    parts: tuple[Part, ...]

    @property
    def tool(self) -> Tool:
        return self.version.tool

    @property
    def why(self) -> str:
        listed = sorted(self.parts, key=lambda part: -abs(part.points))
        told = "; ".join(f"{part.why} ({part.points:+.0f})" for part in listed)
        return f"fitness {self.fitness:.0f}: {told}"


class Candidate(NamedTuple):
    """A tool that was found, and how like the task what it says of itself is."""

    row: CalledRow
    likeness: float


def scope_name(folder: str) -> str:
    """The memory's scope of the tools of a folder."""
    return "tools" if not folder else f"tools:{hashlib.sha256(folder.encode()).hexdigest()[:32]}"


def catch_up(ledger: Ledger, memory: Memory) -> int:
    """Bring the memory in line with the ledger, and say how many tools had changed.

    The memory keeps up to which revision it has come, so that one that is new, or was away, misses nothing. Done twice
    at once, the same is stored twice, which is once.
    """
    stamp = next(iter(memory.entries(kind=_STAMP, limit=1)), None)
    seen = int(stamp.data.get("revision", 0)) if stamp is not None else 0
    changed = 0
    while True:
        with ledger.read() as tx:
            last = last_revision(tx)
            # A ledger that was put back to an earlier day counts from there.
            seen = seen if seen <= last else 0
            rows = changed_tools(tx, after=seen, limit=_BATCH) if seen < last else []
            ids = [row.called_id for row in rows if row.called_id is not None and not row.removed]
            versions = versions_by_id(tx, ids)
        if not rows:
            return changed
        for row in rows:
            _store(memory, row, versions.get(row.called_id or 0))
        changed += len(rows)
        seen = rows[-1].revision
        memory.store("how far the tools are known", kind=_STAMP, data={"revision": seen}, key=_STAMP)


def candidates(
    ledger: Ledger,
    memory: Memory,
    text: str,
    *,
    folders: Sequence[str],
    type: ToolType | None,
    tags: Sequence[str],
) -> list[Candidate]:
    """The tools whose descriptions mean most nearly what `text` says."""
    wanted = [*tags, *([_type_tag(type)] if type is not None else [])]
    found: list[Found] = []
    for folder in folders:
        found += memory.find(text, limit=_WEIGHED, tags=wanted, scope=scope_name(folder))
    likeness = {each.entry.data["row"]: each.likeness for each in found if "row" in each.entry.data}
    with ledger.read() as tx:
        rows = called_versions(tx, ids=list(likeness))
    return [Candidate(row, max(0.0, likeness[row.tool_id])) for row in rows]


def record_opinion(memory: Memory, tool: str, good: bool, text: str) -> None:
    """Remember what a tool was used for, and whether it served."""
    memory.store(text, kind=FEEDBACK, tags=[tool[:_LONGEST_TAG]], data={"tool": tool, "good": good})


def opinions(memory: Memory, text: str) -> Mapping[str, list[Opinion]]:
    """What was said of tools after tasks that share many of their words with `text`, by the tool."""
    words = frozenset(indexed(text))
    found: dict[str, list[Opinion]] = defaultdict(list)
    for each in memory.words(text, limit=_OPINIONS, kind=FEEDBACK) if words else []:
        others = frozenset(indexed(each.entry.text))
        alike = len(words & others) / len(words | others)
        tool, good = each.entry.data.get("tool"), each.entry.data.get("good")
        if alike > _ALIKE and isinstance(tool, str) and isinstance(good, bool):
            found[tool].append(Opinion(good, alike))
    return found


def _store(memory: Memory, row: ToolRow, version: VersionRow | None) -> None:
    key = f"tool:{row.id}"
    if row.removed or version is None:
        for entry in memory.entries(kind=KIND, tags=[key], limit=10):
            memory.delete(id=entry.id)
        return
    definition: Mapping[str, Any] = version.definition
    tags = [tag for tag in definition.get("tags", []) if tag.strip()][:_MOST_TAGS]
    memory.store(
        _described(row.name, definition, tags),
        kind=KIND,
        tags=[key, _type_tag(definition["type"]), *(tag[:_LONGEST_TAG] for tag in tags)],
        data={"tool": row.name, "row": row.id, "version": version.version, "hash": version.hash},
        scope=scope_name(row.folder),
        key=key,
    )


def _described(id: str, definition: Mapping[str, Any], tags: Sequence[str]) -> str:
    """What a tool is for, in its own words. The id in pieces, since that often says it best."""
    name = definition.get("name", "")
    words = id.replace("_", " ").replace("-", " ")
    return "\n".join(
        part for part in (name, words, definition.get("description", ""), ", ".join(tags)) if part
    )


def _type_tag(type: str) -> str:
    return f"type:{type}"
