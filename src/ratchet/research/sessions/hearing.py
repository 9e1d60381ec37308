"""Telling the hooks of a task what a session does, and asking them. One that breaks ends the session."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from ratchet.engines import Failure, Session, SessionFailed, Tool
from ratchet.engines.tool_server import in_words
from ratchet.kernel import RatchetError
from ratchet.research.hooks import AllHooks
from ratchet.research.sessions.sitting import Sitting

_Said = TypeVar("_Said")


class ToolFailed(RatchetError):
    """What went wrong with a tool, as the model is told."""


class Hearing:
    """The hooks of one session. What they raise becomes a `SessionFailed`, and breaks the session off."""

    def __init__(self, sitting: Sitting, engine: str) -> None:
        self._sitting = sitting
        self._facts = sitting.facts
        self._engine = engine
        self._hooks = AllHooks(sitting.task.hooks())

    async def started(self) -> None:
        await self._heard("session_started", self._hooks.session_started(self._facts))

    async def ended(self, problem: str | None) -> None:
        await self._heard("session_ended", self._hooks.session_ended(self._facts, problem))

    def watched(self, tool: Tool) -> Tool:
        """The tool, with the hooks asked before and after each use, and its answers of a bearable length."""
        facts, hooks = self._facts, self._hooks

        async def run(given: Mapping[str, Any]) -> str:
            objection = await self._heard("before_tool", hooks.before_tool(facts, tool.name, given))
            if objection is not None:
                raise ToolFailed(self._sitting.outputs.capped(f"this was forbidden: {objection}"))
            failed = False
            try:
                answer = await tool.run(given)
            except Exception as error:  # noqa: BLE001 - told to the model, as a tool promises
                answer, failed = in_words(error), True
            said = await self._heard("after_tool", hooks.after_tool(facts, tool.name, given, answer))
            capped = self._sitting.outputs.capped(said)
            if failed:
                raise ToolFailed(capped)
            return capped

        return Tool(tool.name, tool.description, tool.input_schema, run)

    async def _heard(self, name: str, calling: Awaitable[_Said]) -> _Said:
        try:
            return await calling
        except Exception as error:
            broken = SessionFailed(
                Failure.REFUSED,
                f"the hook {name} failed: {type(error).__name__}: {error}",
                session=Session(self._engine),
                hint="mend the hooks of the task: no session goes on without them",
            )
            self._sitting.break_off(broken)
            raise broken from error
