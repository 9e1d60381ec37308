"""How well a tool fits a task: a sum of named parts, so that the choice can be explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.ledger.tools import CalledRow
from ratchet.tools.definition import Tool, ToolType

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


@dataclass(frozen=True, slots=True)
class Part:
    """One reason for or against a tool: how much it counts, and why in words."""

    name: str
    points: float
    why: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """What somebody said of a tool after using it for a task that is `alike` this one, from 0 to 1."""

    good: bool
    alike: float


def fitness_of(
    tool: Tool, likeness: float, version: CalledRow, opinions: Sequence[Opinion] = (), *, best: float
) -> tuple[Part, ...]:
    """The parts of the fitness; those that say nothing about this tool are left out.

    `best` is the greatest likeness of all that were found. What a tool is like in general counts in full for that one,
    and the less for others the further they are from it: a tool for something else is no better for being fast.
    """
    relevance = min(1.0, likeness / max(best, _RELATED)) ** 2
    general = [*_from_tiers(tool), *_from_calls(version)]
    if weight := _weight(tool):
        general.append(Part("weight", weight, "its definition says how much it is to be preferred"))
    parts = [
        Part("similarity", 100 * likeness, f"its description is {likeness:.2f} like the task"),
        *_from_opinions(opinions),
        *(Part(part.name, part.points * relevance, part.why) for part in general),
    ]
    if tool.type is ToolType.WORKFLOW and likeness >= 0.7:
        points = 30.0 if likeness >= 0.9 else 15.0
        parts.append(Part("effort", points, "it is a whole workflow that does much of the task"))
    if tool.type is ToolType.MCP:
        parts.append(Part("mcp", _MCP, "it is a tool of a server that must be started"))
    return tuple(part for part in parts if part.points or part.name == "similarity")


def worth_showing(likeness: float, fitness: float) -> bool:
    return likeness >= KEEP_LIKENESS or fitness >= KEEP_FITNESS


def _from_opinions(opinions: Sequence[Opinion]) -> list[Part]:
    if not opinions:
        return []
    points = sum((10 + 20 * each.alike) * (1 if each.good else -1) for each in opinions)
    praised = sum(each.good for each in opinions)
    told = f"for like tasks it was praised {praised} and blamed {len(opinions) - praised} times"
    return [Part("feedback", max(-_MOST_FEEDBACK, min(_MOST_FEEDBACK, points)), told)]


def _from_tiers(tool: Tool) -> list[Part]:
    tiers = (
        ("speed", _SPEED, tool.speed_tier),
        ("cost", _COST, tool.cost_tier),
        ("quality", _QUALITY, tool.quality_tier),
    )
    return [
        Part(name, scale[tier], f"its {name} is said to be {tier}")
        for name, scale, tier in tiers
        if tier is not None
    ]


def _from_calls(version: CalledRow) -> list[Part]:
    if not version.calls:
        return []
    latency = version.wall_ms / version.calls
    points = 15.0 if latency < 100 else 10.0 if latency < 500 else -10.0 if latency > 5000 else 0.0
    parts = [Part("latency", points, f"its {version.calls} calls took {latency:.0f} ms on average")]
    if version.scored:
        score = version.score_sum / version.scored
        parts.append(Part("success", 10 * score, f"its calls were scored {score:.2f} on average"))
    else:
        rate = 1 - version.failures / version.calls
        parts.append(Part("success", 10 * rate, f"{rate:.0%} of its calls went well"))
    return parts


def _weight(tool: Tool) -> float:
    """`manual_weight` as it stands, or a tenth of the priority, which old files count from 0 to 100."""
    given = tool.extra.get("manual_weight")
    weight = given if isinstance(given, int | float) else tool.priority / 10
    return max(-_MOST_WEIGHT, min(_MOST_WEIGHT, float(weight)))
