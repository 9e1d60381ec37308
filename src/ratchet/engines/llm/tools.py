"""The tools that a model may use during a session, and who may forbid it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ratchet.engines.answer import validate_answer
from ratchet.engines.llm.fault import CallFault
from ratchet.engines.session import EventKind, Guard, Tool
from ratchet.engines.transcript import Transcript

if TYPE_CHECKING:
    from pydantic_ai.messages import ToolCallPart

# What of a result a model is shown; the rest would only fill its context.
_LONGEST = 100_000


def prefixed(tool: Tool, server: str) -> Tool:
    """`tool` under the name that every engine gives to a tool of this server."""
    return replace(tool, name=f"mcp__{server}__{tool.name}")


class Toolbox:
    """Uses a tool as a model asks. A mistake becomes a result that tells the model so."""

    def __init__(self, tools: Sequence[Tool], guard: Guard | None, transcript: Transcript) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.denied: list[dict[str, str]] = []
        self._guard = guard
        self._transcript = transcript

    async def use(self, call: ToolCallPart) -> str:
        """What the model is told. Raises `CallFault` when the tool itself is gone."""
        tool = self.tools.get(call.tool_name)
        if tool is None:
            return f"Error: there is no tool {call.tool_name!r}; there are: {', '.join(self.tools) or 'none'}"
        try:
            given = validate_answer(json.loads(call.args_as_json_str()), tool.input_schema)
        except (ValueError, RecursionError) as error:
            return f"Error: the arguments cannot be used: {error}"
        if reason := await self._objection(tool, given):
            self.denied.append({"tool": tool.name, "reason": reason})
            self._transcript.say(EventKind.NOTE, f"{tool.name} was denied: {reason}")
            return f"Error: this was denied: {reason}"
        try:
            result = await tool.run(given)
        except CallFault:
            raise
        except Exception as error:  # noqa: BLE001 - told to the model, as a tool promises
            return f"Error: {type(error).__name__}: {error}"
        return result if len(result) <= _LONGEST else f"{result[:_LONGEST]}… (cut)"

    async def _objection(self, tool: Tool, given: Mapping[str, Any]) -> str | None:
        """Why the guard forbids this, if it does. What it could not be asked about is forbidden."""
        if self._guard is None:
            return None
        try:
            return await self._guard(tool.name, given)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody has allowed this
            return f"the guard failed: {type(error).__name__}: {error}"
