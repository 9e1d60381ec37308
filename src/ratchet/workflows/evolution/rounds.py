"""Measuring two versions of a tool side by side, on the same cases, in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ratchet.tools.call import ToolFailed, ToolResult, ToolUse
from ratchet.tools.definition import Tool
from ratchet.workflows.evolution.cases import Case

CallTool = Callable[[Tool, Mapping[str, Any]], Awaitable[ToolResult]]
"""Calls a tool with values, in its sandbox. Raises `ToolFailed`."""


class Side(StrEnum):
    INCUMBENT = "incumbent"
    VARIANT = "variant"


# One goes first on every other case and in every other round (ABBA): what drifts, such as the load of the machine, hits
# both alike.
_IN_TURN = ((Side.INCUMBENT, Side.VARIANT), (Side.VARIANT, Side.INCUMBENT))


@dataclass(frozen=True, slots=True)
class Answer:
    """What one side made of one case. `problem` says why it failed; `right` whether it is what the case asks for."""

    use: ToolUse
    right: bool
    value: Any = None
    problem: str | None = None


@dataclass(slots=True)
class Round:
    """Every case, once by each side."""

    answers: dict[Side, list[Answer]] = field(default_factory=lambda: {side: [] for side in Side})

    def total(self, side: Side, measure: str) -> float | None:
        """What a side took for the cases that both got right; `None` where there is none or nothing was measured."""
        pairs = zip(*(self.answers[each] for each in Side), strict=True)
        both = [index for index, pair in enumerate(pairs) if all(answer.right for answer in pair)]
        taken = [getattr(self.answers[side][index].use, measure) for index in both]
        return None if not taken or None in taken else float(sum(taken))

    def score(self, side: Side) -> float:
        """The part of the cases that a side got right."""
        return sum(answer.right for answer in self.answers[side]) / len(self.answers[side])


async def measure_round(
    number: int, sides: Mapping[Side, Tool], cases: Sequence[Case], call: CallTool
) -> Round:
    """Each case by both sides, one call at a time: two at once would measure each other."""
    taken = Round()
    for index, case in enumerate(cases):
        for side in _IN_TURN[(number + index) % 2]:
            taken.answers[side].append(await ask(sides[side], case, call))
    return taken


async def ask(tool: Tool, case: Case, call: CallTool) -> Answer:
    """What a tool makes of a case. A call that fails in any way is an answer that is not right."""
    try:
        called = await call(tool, case.values)
    except ToolFailed as failed:
        return Answer(failed.use, right=False, problem=str(failed))
    problem = case.complaint(called.value)
    return Answer(called.use, problem is None, called.value, problem)
