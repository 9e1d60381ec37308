"""The Codex CLI as an engine: one `codex exec` for each session, in a home of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ratchet.engines.agent_model import agent_model
from ratchet.engines.codex.access import CodexAccess, find_access
from ratchet.engines.codex.configuration import OPENAI, SessionFiles, write_files
from ratchet.engines.codex.conversation import Conversation
from ratchet.engines.codex.kept import KeptRollouts
from ratchet.engines.codex.preflight import check_sandbox
from ratchet.engines.codex.program import Program, find_program
from ratchet.engines.codex.rollout import Rollout
from ratchet.engines.codex.sitting import Sitting
from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.fitness import check_fit
from ratchet.engines.kept import KeptSessions
from ratchet.engines.prices import price_of
from ratchet.engines.privacy import private_places
from ratchet.engines.probe import Endpoint, probe
from ratchet.engines.registry import Surroundings
from ratchet.engines.session import Capabilities, Request, Session
from ratchet.engines.session_home import session_home
from ratchet.engines.supervision import Invocation, could_not_write, supervise
from ratchet.engines.transcript import Transcript

_COMPLAINT = 2000


def open_codex(surroundings: Surroundings, option: str) -> Engine:
    """The Codex CLI; `option` is the model, instead of the one in the settings."""
    return CodexEngine(surroundings, option or None)


class CodexEngine:
    def __init__(self, surroundings: Surroundings, model: str | None) -> None:
        self._around = surroundings
        self._settings = surroundings.settings.engines.codex
        self._prices = surroundings.settings.llm.prices
        self._model = model
        self._home = surroundings.home
        self._environment = surroundings.environment
        # Raises for a model that Codex cannot ask, before anything is begun with it.
        agent_model(model, "codex", self._settings, surroundings)
        self._kept = KeptRollouts(KeptSessions(self._home / "sessions" / "codex", self._settings.resume_days))

    @property
    def name(self) -> str:
        return "codex"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            edits_files=self._settings.sandbox != "read-only",
            structured_output=True,
            mcp_tools=True,
            resumable=True,
            reports_usage=True,
        )

    async def check(self) -> Readiness:
        try:
            access = find_access(self._model, self._settings, self._around)
            program = await find_program(self._settings, self._environment)
            async with session_home(self._home) as directory:
                invocation = self._prepare(program, Request("nothing"), SessionFiles(directory), access)
                await check_sandbox(program, self._settings.sandbox, invocation)
        except Fault as fault:
            return Readiness(False, str(fault), fault.hint, fault.failure)
        access = access.or_model(program.default_model)
        driven = f"{program.version} at {program.path}, {access.told}"
        if access.by_login:
            # Its endpoint is the program's own affair; it lists no models to others.
            return Readiness(
                True, driven, unproven="a login shows with the first session whether it is accepted"
            )
        settings = access.settings
        found = await probe(
            Endpoint(
                access.model or "codex",
                settings.base_url or OPENAI,
                access.environment.get(settings.key_variable, ""),
                access.model,
                access.names,
                asks="responses",
            )
        )
        unpriced = (
            None
            if price_of(access.model, self._prices, url=settings.base_url, keyless=not settings.key_variable)
            else access.model or "its model"
        )
        return replace(
            found, detail=f"{driven}; {found.detail}" if found.ready else found.detail, unpriced=unpriced
        )

    async def propose(self, request: Request) -> Session:
        check_fit(request, self.name, self.capabilities)
        transcript = Transcript(request)
        try:
            access = find_access(request.model or self._model, self._settings, self._around)
        except Fault as fault:
            session = Session(self.name, model=request.model or self._model)
            raise fault.failed(session, worked=False) from None
        conversation = Conversation(transcript, access.secrets.hide)
        sitting = Sitting(request, conversation, access, self._prices)
        try:
            program = await find_program(self._settings, self._environment)
            access = access.or_model(program.default_model)
            sitting.asked_model = access.model
            sitting.check_price()
            async with session_home(self._home) as directory:
                return await self._hold(sitting, program, SessionFiles(directory), access)
        except OSError as error:
            raise could_not_write(error).failed(sitting.session(), worked=sitting.worked) from error
        except Fault as fault:
            raise fault.failed(sitting.session(), worked=sitting.worked) from None

    async def _hold(
        self, sitting: Sitting, program: Program, files: SessionFiles, access: CodexAccess
    ) -> Session:
        request = sitting.request
        invocation = self._prepare(program, request, files, access)
        await check_sandbox(program, self._settings.sandbox, invocation)
        sitting.rollout = Rollout(files.rollouts)
        try:
            finished = await supervise(invocation, request, hear=sitting.conversation.hear, look=sitting.look)
        finally:
            sitting.used()
            sitting.keep(self._kept, access.secrets.hide)
        complaint = access.secrets.hide(finished.stderr.decode(errors="replace")).strip()[-_COMPLAINT:]
        return sitting.conclude(finished, complaint)

    def _prepare(
        self, program: Program, request: Request, files: SessionFiles, access: CodexAccess
    ) -> Invocation:
        """Write the files of a session and say how it is called."""
        workspace = request.workspace.resolve() if request.workspace else files.scratch
        environment = write_files(files, access, request, workspace)
        if request.resume is not None and not self._kept.bring_back(request.resume, files.rollouts):
            raise Fault(
                Failure.REFUSED,
                f"there is no session {request.resume} of Codex to resume",
                hint=f"start a new one; sessions are kept for {self._settings.resume_days} days",
            )
        places = (workspace,) if request.workspace else ()
        edits = self.capabilities.edits_files
        return Invocation(
            self._argv(program, request, files, workspace),
            workspace,
            environment,
            # On stdin, which has room for any prompt and takes one that begins with a dash for what it is.
            stdin=request.prompt.encode(errors="replace"),
            readable=request.readable if edits else (*request.readable, *places),
            writable=(files.home, *places) if edits else (files.home,),
            places=request.places,
            hidden=private_places(
                self._home,
                self._environment,
                (files.home, workspace, program.path, *request.readable),
                request.hidden,
            ),
        )

    def _argv(
        self, program: Program, request: Request, files: SessionFiles, workspace: Path
    ) -> tuple[str, ...]:
        schema = ("--output-schema", str(files.schema)) if request.output_schema is not None else ()
        resume = ("resume", request.resume) if request.resume is not None else ()
        return (
            str(program.path),
            "exec",
            "--json",
            # A setting that this version does not know would be a wall that is not there.
            "--strict-config",
            "--ignore-rules",
            "--skip-git-repo-check",
            *("--color", "never", "-s", self._settings.sandbox, "-C", str(workspace)),
            *schema,
            *resume,
            "-",
        )
