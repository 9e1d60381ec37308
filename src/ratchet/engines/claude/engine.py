"""The Claude Agent SDK as an engine: one run of the Claude CLI for each session, in a sandbox and a home of its own."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ratchet.engines.agent_model import agent_model
from ratchet.engines.claude.conversations import Conversations
from ratchet.engines.claude.program import Program, find_program
from ratchet.engines.claude.servers import check_names
from ratchet.engines.claude.terms import Terms, find_terms
from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.fault import Fault
from ratchet.engines.fitness import check_fit
from ratchet.engines.kept import KeptSessions
from ratchet.engines.probe import Endpoint, probe
from ratchet.engines.registry import Surroundings
from ratchet.engines.secrets import Secrets
from ratchet.engines.session import Capabilities, Request, Session
from ratchet.engines.session_home import session_home
from ratchet.engines.transcript import Transcript
from ratchet.kernel import Missing

_ANTHROPIC = "https://api.anthropic.com"

if TYPE_CHECKING:
    from ratchet.engines.claude.sitting import Sitting


def open_claude(surroundings: Surroundings, option: str) -> Engine:
    """The Claude CLI; `option` is the model, instead of the one in the settings."""
    return ClaudeEngine(surroundings, option or None)


class ClaudeEngine:
    def __init__(self, surroundings: Surroundings, model: str | None) -> None:
        settings = surroundings.settings.engines.claude
        self._around = surroundings
        self._model = model
        self._home = surroundings.home.absolute()
        self._kept = Conversations(KeptSessions(self._home / "sessions" / "claude", settings.resume_days))
        # Raises for a model that Claude cannot ask, before anything is begun with it.
        agent_model(model, "claude", settings, surroundings)

    @property
    def name(self) -> str:
        return "claude"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            edits_files=True,
            structured_output=True,
            mcp_tools=True,
            resumable=True,
            reports_usage=True,
            own_tools=True,
        )

    async def check(self) -> Readiness:
        try:
            terms = find_terms(self._model, self._around, self._kept)
            program = await find_program(terms.settings, terms.environment)
        except (Fault, Missing) as error:
            return Readiness(False, str(error), error.hint)
        settings = terms.settings
        driven = f"{program.version} at {program.path}, driven by claude-agent-sdk {program.sdk_version}, {terms.told}"
        found = await probe(
            Endpoint(
                terms.model or "claude",
                f"{(settings.base_url or _ANTHROPIC).removesuffix('/v1')}/v1",
                terms.key,
                # The names of the program's own, such as `sonnet`, are not the endpoint's.
                terms.model if terms.model and "-" in terms.model else None,
                terms.names,
                speaks="anthropic",
                key_kind=settings.key_kind,
                asks="messages",
            )
        )
        return replace(found, detail=f"{driven}; {found.detail}") if found.ready else found

    async def propose(self, request: Request) -> Session:
        # Of all programs in a sandbox this one can be given a guard.
        check_fit(replace(request, guard=None), self.name, self.capabilities)
        check_names(request)
        transcript = Transcript(request)
        try:
            terms = find_terms(request.model or self._model, self._around, self._kept)
            program = await find_program(terms.settings, terms.environment)
        except (Fault, Missing) as error:
            session = Session(self.name, model=request.model or self._model)
            raise _failed(error, session, Secrets(()), worked=False) from None
        request = replace(request, model=None)
        # In a thread, since it imports the SDK, which takes a second.
        sitting = await asyncio.to_thread(_sit_down, terms, program, request, transcript)
        try:
            async with session_home(self._home) as directory:
                return await sitting.hold(directory)
        except (Fault, Missing) as error:
            raise _failed(error, sitting.session(), terms.secrets, worked=sitting.worked) from None


def _failed(error: Fault | Missing, session: Session, secrets: Secrets, *, worked: bool) -> SessionFailed:
    # What an endpoint complains about may contain what it was given. `Missing` is room, or a layer of the sandbox.
    told = secrets.hide(str(error))
    fault = error if isinstance(error, Fault) else Fault(Failure.MISSING, told, hint=error.hint)
    return SessionFailed(
        fault.failure,
        told,
        session=session,
        hint=fault.hint,
        retry_after=fault.retry_after,
        worked=worked,
    )


def _sit_down(terms: Terms, program: Program, request: Request, transcript: Transcript) -> Sitting:
    from ratchet.engines.claude.sitting import Sitting

    # The SDK calls each end of its program a fatal error, also one that we brought about; ours are typed.
    logging.getLogger("claude_agent_sdk").setLevel(logging.CRITICAL)
    return Sitting(terms, program, request, transcript)
