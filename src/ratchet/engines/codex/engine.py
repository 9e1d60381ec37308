"""The Codex CLI as an engine: which program, whether its sandbox works, and one `codex exec` for each session."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.config.engine_settings import Codex
from ratchet.engines.codex.configuration import OPENAI, CodexAccess, SessionFiles, find_access, write_files
from ratchet.engines.codex.events import CodexEvents, Rollout
from ratchet.engines.codex.session import CodexSession, KeptRollouts
from ratchet.engines.endpoint import ProbedEndpoint, probe
from ratchet.engines.engine import (
    Capabilities,
    Engine,
    Failure,
    Fault,
    Readiness,
    Request,
    Session,
    Transcript,
)
from ratchet.engines.program import (
    NOWHERE,
    Invocation,
    check_fit,
    could_not_write,
    supervise,
    try_out,
    version_of,
)
from ratchet.engines.providers import price_of
from ratchet.engines.registry import EngineContext, agent_model
from ratchet.engines.session_home import KeptSessions, private_places, session_home
from ratchet.kernel import decoded

MINIMUM = (0, 163, 0)
_VERSION = re.compile(rb"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class CodexProgram:
    """`default_model` is the one that it takes when none is named, if it tells."""

    path: Path
    version: str
    default_model: str | None = None


# By path, size and time of change: a program that was replaced is asked again.
_known: dict[tuple[Path, int, int], CodexProgram] = {}


async def find_program(settings: Codex, environment: Mapping[str, str]) -> CodexProgram:
    """The program to use, of a version that will do. Raises `Fault`."""
    path = _native(_located(settings, environment))
    stat = path.stat()
    key = (path, stat.st_size, stat.st_mtime_ns)
    if key not in _known:
        version = await version_of(
            path, _VERSION, MINIMUM, fix=f"reinstall it: {_install()}", update=f"update it: {_install()}"
        )
        _known[key] = CodexProgram(path, version, await _default_model(path))
    return _known[key]


def _install() -> str:
    # Only now: it reads what the installation says of itself.
    from ratchet.extras import install_line

    return f"{install_line('codex')}, or name it in engines.codex.path"


async def _default_model(path: Path) -> str | None:
    """The first model of the program's own list. It is named to it, so that its price is known before it is used."""
    asking = Invocation((str(path), "debug", "models", "--bundled"), Path("/"), NOWHERE, network=False)
    finished = await try_out(asking, _SECONDS)
    try:
        listed = json.loads(finished.stdout)["models"] if finished.ok else []
        offered = [each for each in listed if each["visibility"] == "list" and each["supported_in_api"]]
        return str(min(offered, key=lambda each: each["priority"])["slug"]) if offered else None
    except (ValueError, KeyError, TypeError):
        return None


def _located(settings: Codex, environment: Mapping[str, str]) -> Path:
    search = environment.get("PATH", os.defpath)
    if settings.path is not None:
        named = str(Path(settings.path).expanduser())
        if found := shutil.which(named, path=search):
            return Path(found).absolute()
        raise Fault(
            Failure.MISSING, f"engines.codex.path is {settings.path}, which is not a program", hint=_install()
        )
    if bundled := _bundled():
        return bundled
    if found := shutil.which("codex", path=search):
        return Path(found).absolute()
    raise Fault(Failure.MISSING, "the Codex CLI is not installed", hint=_install())


def _bundled() -> Path | None:
    """The one in the package of the extra `codex`."""
    try:
        from codex_cli_bin import bundled_codex_path  # type: ignore[import-untyped]

        return Path(bundled_codex_path())
    except (ImportError, FileNotFoundError):
        return None


def _native(path: Path) -> Path:
    """The program behind npm's wrapper, which starts slower and does not pass every signal on."""
    real = path.resolve()
    with real.open("rb") as file:
        if b"node" not in file.readline(200):
            return real
    for parent in real.parents[:6]:
        for found in sorted(parent.glob("codex-*/vendor/*/bin/codex")):
            if os.access(found, os.X_OK):
                return found
    return real


_SECONDS = 30.0
# Programs, versions and search paths with which it worked in this process. A failure is tried again each time.
_worked: set[tuple[Path, str, str, str]] = set()


async def check_sandbox(program: CodexProgram, mode: str, session: Invocation) -> None:
    """Start a command as `session` would, in the same directory with the same environment. Raises `Fault`."""
    key = (program.path, program.version, mode, session.environment["PATH"])
    if mode == "danger-full-access" or key in _worked:
        return
    argv = (str(program.path), "sandbox", "-c", f'sandbox_mode="{mode}"', "--", "true")
    finished = await try_out(replace(session, argv=argv), _SECONDS)
    if not finished.ok:
        said = decoded(finished.stderr).strip()[-300:]
        raise Fault(
            Failure.MISSING,
            f"the sandbox of Codex does not work here: {said or finished.problem or 'it did not say why'}",
            hint="allow user namespaces and update bubblewrap; or run Ratchet in a container of its own "
            'and set engines.codex.sandbox = "danger-full-access"',
        )
    _worked.add(key)


_COMPLAINT = 2000


def open_codex(surroundings: EngineContext, option: str) -> Engine:
    """The Codex CLI; `option` is the model, instead of the one in the settings."""
    return CodexEngine(surroundings, option or None)


class CodexEngine:
    def __init__(self, surroundings: EngineContext, model: str | None) -> None:
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
        driven = f"{program.version} at {program.path}, {access.description}"
        if access.by_login:
            # Its endpoint is the program's own affair; it lists no models to others.
            return Readiness(
                True, driven, unproven="a login shows with the first session whether it is accepted"
            )
        settings = access.settings
        found = await probe(
            ProbedEndpoint(
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
        conversation = CodexEvents(transcript, access.secrets.hide)
        held = CodexSession(request, conversation, access, self._prices)
        try:
            program = await find_program(self._settings, self._environment)
            access = access.or_model(program.default_model)
            held.asked_model = access.model
            held.check_price()
            async with session_home(self._home) as directory:
                return await self._hold(held, program, SessionFiles(directory), access)
        except OSError as error:
            raise could_not_write(error).failed(held.session(), worked=held.worked) from error
        except Fault as fault:
            raise fault.failed(held.session(), worked=held.worked) from None

    async def _hold(
        self, held: CodexSession, program: CodexProgram, files: SessionFiles, access: CodexAccess
    ) -> Session:
        request = held.request
        invocation = self._prepare(program, request, files, access)
        await check_sandbox(program, self._settings.sandbox, invocation)
        held.rollout = Rollout(files.rollouts)
        try:
            finished = await supervise(invocation, request, hear=held.conversation.hear, look=held.look)
        finally:
            held.used()
            held.keep(self._kept, access.secrets.hide)
        complaint = access.secrets.hide(decoded(finished.stderr)).strip()[-_COMPLAINT:]
        return held.conclude(finished, complaint)

    def _prepare(
        self, program: CodexProgram, request: Request, files: SessionFiles, access: CodexAccess
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
            readable=(
                *self._around.readable,
                *(path for server in request.mcp_servers for path in server.named_files()),
                *request.readable,
                *(() if edits else places),
            ),
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
        self, program: CodexProgram, request: Request, files: SessionFiles, workspace: Path
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
