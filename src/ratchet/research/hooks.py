"""The lifecycle of a specialist's session, for those who want to hear of it and may forbid what it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class SessionFacts:
    run_id: int
    specialist: str
    directory: Path


class Hooks:
    """Override what is wanted. Whatever a hook raises ends the session as failed: a guard that breaks must not open."""

    async def session_started(self, session: SessionFacts) -> None:
        """Called before the engine begins."""

    async def session_ended(self, session: SessionFacts, problem: str | None) -> None:
        """Called when it has ended; `problem` says why it failed, if it did."""

    async def before_tool(self, session: SessionFacts, tool: str, given: Mapping[str, Any]) -> str | None:
        """Asked before one of Ratchet's tools runs. A text forbids it and is told to the model."""
        return None

    async def after_tool(
        self, session: SessionFacts, tool: str, given: Mapping[str, Any], answer: str
    ) -> str:
        """What the model is told instead of `answer`, which may also be an error."""
        return answer


class AllHooks(Hooks):
    """Several as one: each hears of everything, the first objection counts, and answers go through all in order."""

    def __init__(self, hooks: Sequence[Hooks]) -> None:
        self._hooks = tuple(hooks)

    async def session_started(self, session: SessionFacts) -> None:
        for each in self._hooks:
            await each.session_started(session)

    async def session_ended(self, session: SessionFacts, problem: str | None) -> None:
        for each in self._hooks:
            await each.session_ended(session, problem)

    async def before_tool(self, session: SessionFacts, tool: str, given: Mapping[str, Any]) -> str | None:
        for each in self._hooks:
            objection = await each.before_tool(session, tool, given)
            if objection is not None:
                return objection
        return None

    async def after_tool(
        self, session: SessionFacts, tool: str, given: Mapping[str, Any], answer: str
    ) -> str:
        for each in self._hooks:
            answer = await each.after_tool(session, tool, given, answer)
        return answer
