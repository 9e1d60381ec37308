"""The examples of a tool as tests of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.tools.call import Occasion, ToolFailed, ToolUse
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Example, Tool

_TOLERANCE = 1e-9
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """One example: what came of it, and `why` it did not pass. Only a `checked` one says what must come of it."""

    input: Mapping[str, Any]
    passed: bool
    got: Any = None
    expected: Any = None
    checked: bool = True
    why: str | None = None
    use: ToolUse = field(default_factory=ToolUse)
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class ToolTested:
    tool: str
    results: tuple[ExampleResult, ...]

    @property
    def passed(self) -> bool:
        """Whether there were examples, and all of them passed."""
        return bool(self.results) and all(each.passed for each in self.results)


async def test_tool(tool: Tool, occasion: Occasion) -> ToolTested:
    """Call the tool with the input of each example, one after the other. What fails is reported, not raised."""
    return ToolTested(tool.id, tuple([await _try(tool, each, occasion) for each in tool.examples]))


async def _try(tool: Tool, example: Example, occasion: Occasion) -> ExampleResult:
    expected = example.output if example.checked else None
    try:
        called = await call_tool(tool, example.input, occasion)
    except ToolFailed as failed:
        return ExampleResult(
            example.input, False, expected=expected, checked=example.checked, why=str(failed), use=failed.use
        )
    why = difference(called.value, expected) if example.checked else None
    return ExampleResult(
        example.input,
        why is None,
        called.value,
        expected,
        example.checked,
        why,
        called.use,
        called.simulated,
    )


def difference(got: Any, expected: Any, path: str = "$") -> str | None:
    """The first place where two JSON values differ, in words; numbers may do so by a rounding error."""
    if _is_number(got) and _is_number(expected):
        return None if _near(got, expected) else f"{path} is {got!r}, not {expected!r}"
    if isinstance(got, Mapping) and isinstance(expected, Mapping):
        if got.keys() != expected.keys():
            odd = ", ".join(sorted(map(str, got.keys() ^ expected.keys())))
            return f"{path} has other names: {odd}"
        return next(
            filter(None, (difference(got[key], expected[key], f"{path}.{key}") for key in expected)), None
        )
    if isinstance(got, list) and isinstance(expected, list):
        if len(got) != len(expected):
            return f"{path} has {len(got)} elements, not {len(expected)}"
        pairs = enumerate(zip(got, expected, strict=True))
        return next(filter(None, (difference(*pair, f"{path}[{number}]") for number, pair in pairs)), None)
    same = type(got) is type(expected) and got == expected
    return None if same else f"{path} is {_shown(got)}, not {_shown(expected)}"


def _near(got: float, expected: float) -> bool:
    if isinstance(got, int) and isinstance(expected, int):
        return got == expected
    try:
        return math.isclose(got, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    except OverflowError:
        # A whole number that is larger than any float is near to none.
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return repr(value)[:_SHOWN]
