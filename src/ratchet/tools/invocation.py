"""One call of a tool outside of a workflow, recorded like any other, and examples of a tool as its tests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.kernel import Conflict, iso
from ratchet.ledger import Transaction
from ratchet.ledger.database import now_ms
from ratchet.ledger.tools import CallRow, record_calls, take_start
from ratchet.runtime import Runtime
from ratchet.tools.call import CALL_SECONDS, Occasion, ToolCallFailed, ToolResult, ToolUse
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Example, Tool
from ratchet.tools.registry import Toolbox, ToolVersion


def call_row(
    tool_id: int,
    version_id: int,
    values: Mapping[str, Any],
    use: ToolUse,
    *,
    called: ToolResult | None = None,
    error: str | None = None,
    run_id: int | None = None,
    step: str | None = None,
) -> CallRow:
    """What a call was given and came to: an answer, or an error."""
    return CallRow(
        tool_id=tool_id,
        version_id=version_id,
        ok=called is not None,
        error=error,
        wall_ms=use.wall_ms,
        cpu_ms=use.cpu_ms,
        peak_bytes=use.peak_bytes,
        cost_microusd=use.cost_microusd,
        tokens=use.tokens,
        unpriced_tokens=use.unpriced_tokens,
        input=dict(values),
        output=None if called is None else called.value,
        run_id=run_id,
        step=step,
        simulated=called is not None and called.simulated,
        at=now_ms(),
    )


class ToolRateLimited(Conflict):
    """The tool has been called as often as it may be within an hour. `free_at` is when it may be again (ms)."""

    http_status = 429

    def __init__(self, tool: str, per_hour: int, free_at: int) -> None:
        super().__init__(
            f"tool {tool} may be called {per_hour} times an hour, and it has been; it is free at {iso(free_at)}",
            hint="wait until then, or raise constraints.max_calls_per_hour in its definition",
        )
        self.tool = tool
        self.per_hour = per_hour
        self.free_at = free_at


def check_constraints(tx: Transaction, tool_id: int, tool: Tool, *, now: int | None = None) -> None:
    """Say that a call of the tool is about to start. Raises `ToolRateLimited` when it must not.

    What is said counts once it is committed, whatever becomes of the call: so no two callers overshoot, and one that
    dies has used its call. A tool without a limit costs nothing.
    """
    per_hour = tool.constraints.max_calls_per_hour
    if per_hour is None:
        return
    free_at = take_start(tx, tool_id, per_hour, tx.now if now is None else now)
    if free_at is not None:
        raise ToolRateLimited(tool.id, per_hour, free_at)


async def use_tool(version: ToolVersion, values: Mapping[str, Any], occasion: Occasion) -> ToolResult:
    """What the tool answers. Raises `ToolCallFailed`, and `ToolRateLimited` for one that may not be called now."""

    async def call() -> ToolResult:
        return await call_tool(version.tool, values, occasion)

    return await on_record(call, version.tool, version.tool_id, version.id, values, occasion)


async def on_record(
    call: Callable[[], Awaitable[ToolResult]],
    tool: Tool,
    tool_id: int,
    version_id: int,
    values: Mapping[str, Any],
    occasion: Occasion,
) -> ToolResult:
    """Make a call of a version of a tool, and write down what it took and came to. Raises as `use_tool` does."""
    await asyncio.to_thread(_start, occasion, tool, tool_id)
    try:
        called = await call()
    except ToolCallFailed as failed:
        row = call_row(tool_id, version_id, values, failed.use, error=str(failed))
        await asyncio.to_thread(_record, occasion, tool, row)
        raise
    row = call_row(tool_id, version_id, values, called.use, called=called)
    await asyncio.to_thread(_record, occasion, tool, row)
    return called


def _start(occasion: Occasion, tool: Tool, tool_id: int) -> None:
    if tool.constraints.max_calls_per_hour is not None:
        with occasion.runtime.ledger.write(actor=occasion.actor) as tx:
            check_constraints(tx, tool_id, tool)


def _record(occasion: Occasion, tool: Tool, row: CallRow) -> None:
    if tool.track_usage:
        with occasion.runtime.ledger.write(actor=occasion.actor) as tx:
            record_calls(tx, [row])


async def take_server(runtime: Runtime, toolbox: Toolbox, server: str, *, actor: str) -> list[ToolVersion]:
    """Ask an MCP server of the settings which tools it has, and let them be used. Raises `ToolCallFailed`."""
    # It is needed for this only, and takes long to import.
    from ratchet.tools.mcp_tools import list_server_tools

    listed = await list_server_tools(server, Occasion(runtime, actor=actor, seconds=CALL_SECONDS))
    return await asyncio.to_thread(toolbox.take_server_tools, server, listed)


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

    @property
    def failed(self) -> int | None:
        """How many examples did not give what they must; `None` where no real answer was held against one."""
        checked = [each for each in self.results if each.checked]
        if not checked or any(each.simulated for each in checked):
            return None
        return sum(not each.passed for each in checked)


async def test_tool(tool: Tool, occasion: Occasion) -> ToolTested:
    """Call the tool with the input of each example, one after the other. What fails is reported, not raised."""
    return ToolTested(tool.id, tuple([await _try(tool, each, occasion) for each in tool.examples]))


async def _try(tool: Tool, example: Example, occasion: Occasion) -> ExampleResult:
    expected = example.output if example.checked else None
    try:
        called = await call_tool(tool, example.input, occasion)
    except ToolCallFailed as failed:
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
