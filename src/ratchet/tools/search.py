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
from ratchet.memory import FoundEntry, Memory
from ratchet.memory.embedders import indexed
from ratchet.tools.definition import Tool, ToolType

if TYPE_CHECKING:
    from ratchet.tools.definition import Tool
    from ratchet.tools.registry import ToolVersion


KEEP_LIKENESS = 0.5
KEEP_FITNESS = 40.0
_SPEED = {"very-fast": 20.0, "fast": 10.0, "medium": 0.0, "slow": -10.0, "very-slow": -20.0}
_COST = {"free": 15.0, "low": 10.0, "medium": 0.0, "high": -10.0, "very-high": -15.0}
_QUALITY = {"excellent": 15.0, "very-good": 10.0, "good": 0.0, "poor": -15.0}
_MOST_FEEDBACK = 50.0
_MOST_WEIGHT = 50.0
_MCP = -40.0
# Where even the best is less like the task than this, none is really for it.
_RELATED = 0.3
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


@dataclass(frozen=True, slots=True)
class FitnessPart:
    """One reason for or against a tool: how much it counts, and why in words."""

    name: str
    points: float
    why: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """Feedback on a tool after using it for a task that is `alike` this one, from 0 to 1."""

    good: bool
    alike: float


def fitness_of(
    tool: Tool, likeness: float, version: CalledRow, opinions: Sequence[Opinion] = (), *, best: float
) -> tuple[FitnessPart, ...]:
    """The parts of the fitness; those that say nothing about this tool are left out.

    `best` is the greatest likeness of all that were found. What a tool is like in general counts in full for that one,
    and the less for others the further they are from it: a tool for something else is no better for being fast.
    """
    relevance = min(1.0, likeness / max(best, _RELATED)) ** 2
    general = [*_from_tiers(tool), *_from_calls(version)]
    if weight := _weight(tool):
        general.append(FitnessPart("weight", weight, "its definition says how much it is to be preferred"))
    parts = [
        FitnessPart("similarity", 100 * likeness, f"its description is {likeness:.2f} like the task"),
        *_from_opinions(opinions),
        *(FitnessPart(part.name, part.points * relevance, part.why) for part in general),
    ]
    if tool.type is ToolType.WORKFLOW and likeness >= 0.7:
        points = 30.0 if likeness >= 0.9 else 15.0
        parts.append(FitnessPart("effort", points, "it is a whole workflow that does much of the task"))
    if tool.type is ToolType.MCP:
        parts.append(FitnessPart("mcp", _MCP, "it is a tool of a server that must be started"))
    return tuple(part for part in parts if part.points or part.name == "similarity")


def worth_showing(likeness: float, fitness: float) -> bool:
    return likeness >= KEEP_LIKENESS or fitness >= KEEP_FITNESS


def _from_opinions(opinions: Sequence[Opinion]) -> list[FitnessPart]:
    if not opinions:
        return []
    points = sum((10 + 20 * each.alike) * (1 if each.good else -1) for each in opinions)
    praised = sum(each.good for each in opinions)
    why = f"for like tasks it was praised {praised} and blamed {len(opinions) - praised} times"
    return [FitnessPart("feedback", max(-_MOST_FEEDBACK, min(_MOST_FEEDBACK, points)), why)]


def _from_tiers(tool: Tool) -> list[FitnessPart]:
    tiers = (
        ("speed", _SPEED, tool.speed_tier),
        ("cost", _COST, tool.cost_tier),
        ("quality", _QUALITY, tool.quality_tier),
    )
    return [
        FitnessPart(name, scale[tier], f"its {name} is said to be {tier}")
        for name, scale, tier in tiers
        if tier is not None
    ]


def _from_calls(version: CalledRow) -> list[FitnessPart]:
    if not version.calls:
        return []
    latency = version.wall_ms / version.calls
    points = 15.0 if latency < 100 else 10.0 if latency < 500 else -10.0 if latency > 5000 else 0.0
    parts = [FitnessPart("latency", points, f"its {version.calls} calls took {latency:.0f} ms on average")]
    if version.scored:
        score = version.score_sum / version.scored
        parts.append(FitnessPart("success", 10 * score, f"its calls were scored {score:.2f} on average"))
    else:
        rate = 1 - version.failures / version.calls
        parts.append(FitnessPart("success", 10 * rate, f"{rate:.0%} of its calls went well"))
    return parts


def _weight(tool: Tool) -> float:
    """`manual_weight` as it stands, or a tenth of the priority, which old files count from 0 to 100."""
    given = tool.extra.get("manual_weight")
    weight = given if isinstance(given, int | float) else tool.priority / 10
    return max(-_MOST_WEIGHT, min(_MOST_WEIGHT, float(weight)))


@dataclass(frozen=True)
class ToolChoice:
    """A tool that may serve. `fitness` is the sum of `parts`, and `why` says them in words."""

    version: ToolVersion
    likeness: float
    fitness: float
    parts: tuple[FitnessPart, ...]

    @property
    def tool(self) -> Tool:
        return self.version.tool

    @property
    def why(self) -> str:
        listed = sorted(self.parts, key=lambda part: -abs(part.points))
        reasons = "; ".join(f"{part.why} ({part.points:+.0f})" for part in listed)
        return f"fitness {self.fitness:.0f}: {reasons}"


class ToolCandidate(NamedTuple):
    """A tool that was found, and how similar its description is to the task."""

    row: CalledRow
    likeness: float


def scope_name(folder: str) -> str:
    """The memory's scope of the tools of a folder."""
    return "tools" if not folder else f"tools:{hashlib.sha256(folder.encode()).hexdigest()[:32]}"


def catch_up(ledger: Ledger, memory: Memory) -> int:
    """Synchronise the memory with the ledger, and return how many tools had changed.

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
        memory.store(
            "up to which revision the tools are known", kind=_STAMP, data={"revision": seen}, key=_STAMP
        )


def candidates(
    ledger: Ledger,
    memory: Memory,
    text: str,
    *,
    folders: Sequence[str],
    type: ToolType | None,
    tags: Sequence[str],
) -> list[ToolCandidate]:
    """The tools whose descriptions mean most nearly what `text` says."""
    wanted = [*tags, *([_type_tag(type)] if type is not None else [])]
    found: list[FoundEntry] = []
    for folder in folders:
        found += memory.find(text, limit=_WEIGHED, tags=wanted, scope=scope_name(folder))
    likeness = {each.entry.data["row"]: each.likeness for each in found if "row" in each.entry.data}
    with ledger.read() as tx:
        rows = called_versions(tx, ids=list(likeness))
    return [ToolCandidate(row, max(0.0, likeness[row.tool_id])) for row in rows]


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
