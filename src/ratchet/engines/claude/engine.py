"""The Claude Agent SDK as an engine: one run of the Claude CLI for each session, in a sandbox and a home of its own."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.config.engine_settings import Claude
from ratchet.engines.claude.environment import ClaudeConversations, Terms, check_names, find_terms
from ratchet.engines.endpoint import HiddenKeys, ProbedEndpoint, probe
from ratchet.engines.engine import (
    Capabilities,
    Engine,
    Failure,
    Fault,
    Readiness,
    Request,
    Session,
    SessionFailed,
    Transcript,
)
from ratchet.engines.program import check_fit, version_of
from ratchet.engines.registry import EngineContext, agent_model
from ratchet.engines.session_home import KeptSessions, session_home
from ratchet.kernel import Missing

_ANTHROPIC = "https://api.anthropic.com"

if TYPE_CHECKING:
    from ratchet.engines.claude.session import ClaudeSession


def open_claude(surroundings: EngineContext, option: str) -> Engine:
    """The Claude CLI; `option` is the model, instead of the one in the settings."""
    return ClaudeEngine(surroundings, option or None)


class ClaudeEngine:
    def __init__(self, surroundings: EngineContext, model: str | None) -> None:
        settings = surroundings.settings.engines.claude
        self._around = surroundings
        self._model = model
        self._home = surroundings.home.absolute()
        self._kept = ClaudeConversations(
            KeptSessions(self._home / "sessions" / "claude", settings.resume_days)
        )
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
        sdk = f"driven by claude-agent-sdk {program.sdk_version}"
        driven = f"{program.version} at {program.path}, {sdk}, {terms.description}"
        found = await probe(
            ProbedEndpoint(
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
            raise _failed(error, session, HiddenKeys(()), worked=False) from None
        request = replace(request, model=None)
        # In a thread, since it imports the SDK, which takes a second.
        held = await asyncio.to_thread(_new_session, terms, program, request, transcript)
        try:
            async with session_home(self._home) as directory:
                return await held.hold(directory)
        except (Fault, Missing) as error:
            raise _failed(error, held.session(), terms.secrets, worked=held.worked) from None


def _failed(error: Fault | Missing, session: Session, secrets: HiddenKeys, *, worked: bool) -> SessionFailed:
    # What an endpoint complains about may contain what it was given. `Missing` is room, or a layer of the sandbox.
    message = secrets.hide(str(error))
    fault = error if isinstance(error, Fault) else Fault(Failure.MISSING, message, hint=error.hint)
    return SessionFailed(
        fault.failure, message, session=session, hint=fault.hint, retry_after=fault.retry_after, worked=worked
    )


def _new_session(
    terms: Terms, program: ClaudeProgram, request: Request, transcript: Transcript
) -> ClaudeSession:
    from ratchet.engines.claude.session import ClaudeSession

    # The SDK calls each end of its program a fatal error, also one that we brought about; ours are typed.
    logging.getLogger("claude_agent_sdk").setLevel(logging.CRITICAL)
    return ClaudeSession(terms, program, request, transcript)


# Older ones take an @path or a /command inside a prompt for an order of the person who starts them.
OLDEST = (2, 1, 248)

_NAMED = "set engines.claude.path to the Claude Code CLI, or unset it to use the SDK's own"
_VERSION = re.compile(rb"(\d{1,9})\.(\d{1,9})\.(\d{1,9}) \(Claude Code\)")


@dataclass(frozen=True, slots=True)
class ClaudeProgram:
    path: Path
    version: str
    sdk_version: str


# By path, size and time of change: a program that was replaced is asked again.
_known: dict[tuple[Path, int, int], str] = {}


async def find_program(settings: Claude, environment: Mapping[str, str]) -> ClaudeProgram:
    """The program to use, of a version that will do. Raises `Fault`."""
    path = _located(settings, environment)
    stat = path.stat()
    key = (path, stat.st_size, stat.st_mtime_ns)
    if key not in _known:
        update = f"update it, or unset engines.claude.path and {_install()}"
        _known[key] = await version_of(path, _VERSION, OLDEST, fix=_NAMED, update=update)
    return ClaudeProgram(path, _known[key], version("claude-agent-sdk"))


def _install() -> str:
    # Only now: it reads what the installation says of itself.
    from ratchet.extras import install_line

    return install_line("claude")


def _located(settings: Claude, environment: Mapping[str, str]) -> Path:
    package = importlib.util.find_spec("claude_agent_sdk")
    if package is None or not package.submodule_search_locations:
        raise Fault(Failure.MISSING, "the Claude Agent SDK is not installed", hint=_install())
    if settings.path is not None:
        named = str(Path(settings.path).expanduser())
        if found := shutil.which(named, path=environment.get("PATH", os.defpath)):
            return Path(found).resolve()
        raise Fault(
            Failure.MISSING, f"engines.claude.path is {settings.path}, which is not a program", hint=_NAMED
        )
    bundled = Path(package.submodule_search_locations[0], "_bundled", "claude")
    if not bundled.is_file():
        raise Fault(
            Failure.MISSING,
            "the Claude Agent SDK was installed without its program",
            hint="install the Claude Code CLI and name it in engines.claude.path",
        )
    return bundled
