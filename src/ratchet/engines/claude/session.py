"""One session of the Claude CLI: its options, its sandbox, and its result."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions

from ratchet.engines.claude.conversation import Talk, TimeBounds, check_ending
from ratchet.engines.claude.engine import ClaudeProgram
from ratchet.engines.claude.environment import (
    KEY_VARIABLE,
    OURS,
    Leash,
    Terms,
    make_environment,
    server_names,
    with_key,
    write_launcher,
    write_servers,
)
from ratchet.engines.claude.events import EDITS, ClaudeEvents, guarding, hidden, own_server
from ratchet.engines.engine import Failure, Fault, NotAnAnswer, Request, Session, Transcript, validate_answer
from ratchet.engines.program import check_budget, out_of_time, seconds_for
from ratchet.engines.providers import price_of, priced
from ratchet.engines.session_home import private_places
from ratchet.kernel import Usage
from ratchet.sandbox import Bounds, Policy, surroundings, wrapped
from ratchet.sandbox.toolchain import program_places

ANSWER = "answer"
"""Where the answer is inside an object, when the schema that was asked for does not want an object itself."""

# The program does not start without a key, and an endpoint of one's own may need none.
_NO_KEY = "none"
_DEFINITIONS = ("$defs", "definitions")
_LONGEST_MESSAGE = 64 * 1024 * 1024


def make_options(
    request: Request,
    terms: Terms,
    *,
    token: str,
    directory: Path,
    workspace: Path,
    launcher: Path,
    environment: Mapping[str, str],
    hearing: ClaudeEvents,
) -> ClaudeAgentOptions:
    """The options of the session `token`, whose own files are in `directory`."""
    servers = directory / "servers.json"
    write_servers(request, servers)
    extra: dict[str, str | None] = {"mcp-config": str(servers)}
    if request.system is not None:
        # In a file, since a command line has a length limit and is seen by everybody.
        (directory / "system").write_text(request.system)
        extra["append-system-prompt-file"] = str(directory / "system")
    settings = terms.settings
    return ClaudeAgentOptions(
        cli_path=launcher,
        cwd=workspace,
        # The SDK adds these to the environment of this process; the sandbox lets in those that it was given.
        env={**environment, KEY_VARIABLE: terms.key or _NO_KEY},
        model=request.model or terms.model,
        effort=settings.effort,
        # Without a snapshot, so that a session that resumes another one obeys its own system prompt.
        system_prompt={"type": "preset", "preset": "claude_code", "snapshot": False},
        tools=list(settings.tools),
        # Edits are allowed by the permission mode, inside the workspace. Naming them would allow them everywhere.
        allowed_tools=[
            *(tool for tool in settings.tools if tool not in EDITS),
            *(f"mcp__{name}" for name in server_names(request)),
        ],
        permission_mode="acceptEdits",
        hooks={"PreToolUse": [guarding(request.guard, hearing.deny)]} if request.guard else None,
        mcp_servers={OURS: own_server(request.tools)} if request.tools else {},
        strict_mcp_config=True,
        setting_sources=[],
        skills=[],
        # The prompt may quote any text: neither @paths nor /commands in it are orders.
        verbatim_prompts=True,
        include_partial_messages=True,
        max_turns=settings.max_turns,
        max_budget_usd=request.limits.cost_usd,
        output_format=_format(request.output_schema),
        session_id=token,
        resume=request.resume,
        fork_session=request.resume is not None,
        max_buffer_size=_LONGEST_MESSAGE,
        stderr=hearing.hear_stderr,
        extra_args=extra,
    )


def wants_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _format(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    # The program refuses to start with a dialect that it does not know by name.
    asked = {key: value for key, value in schema.items() if key != "$schema"}
    if not wants_object(schema):
        # References go to the top, so what they refer to must stay there.
        definitions: dict[str, Any] = {key: asked.pop(key) for key in _DEFINITIONS if key in asked}
        asked = {"type": "object", "properties": {ANSWER: asked}, "required": [ANSWER], **definitions}
    return {"type": "json_schema", "schema": asked}


# An agent runs compilers and test suites; the limits here only stop what runs wild.
_PROCESSES = 4096
# The sandbox ends what is left when this process could not.
_GRACE_SECONDS = 30.0
_BEGUN = "begun"


class ClaudeSession:
    def __init__(
        self, terms: Terms, program: ClaudeProgram, request: Request, transcript: Transcript
    ) -> None:
        self._terms = terms
        self._program = program
        self._request = request
        self._transcript = transcript
        self._token = str(uuid.uuid4())
        self._resumable = False
        self._layers: tuple[str, ...] = ()
        self._bounded_by: Mapping[str, str] = {}
        self._seconds = seconds_for(request)
        self._ends_at = time.monotonic() + self._seconds
        self._workspace = request.workspace.resolve() if request.workspace else None
        self._hearing = ClaudeEvents(
            request, transcript, ends_at=self._ends_at, workspace=self._workspace, hide=terms.secrets.hide
        )

    @property
    def worked(self) -> bool:
        return self._hearing.worked

    def session(self, output: Any = None) -> Session:
        """What the session came to so far."""
        heard, hide = self._hearing, self._terms.secrets.hide
        data: dict[str, Any] = {"program": self._program.version, "denied": list(heard.denied.values())}
        data |= {"layers": list(self._layers), "bounded_by": dict(self._bounded_by)}
        if heard.result is not None:
            data["turns"] = heard.result.num_turns
        return Session(
            engine="claude",
            model=heard.model or self._request.model or self._terms.model,
            text=hide(heard.text),
            output=output,
            usage=replace(self._priced(heard.usage), wall_ms=self._transcript.wall_ms),
            resume=self._token if self._resumable else None,
            transcript=self._transcript.content,
            data=hidden(data, hide),
        )

    def _priced(self, usage: Usage) -> Usage:
        """With the cost, also of a session that ended before its program could tell it."""
        settings = self._terms.settings
        keyless = not settings.key_variable
        if (usage.cost_microusd and not keyless) or not usage.tokens:
            return usage
        model = self._hearing.model or self._request.model or self._terms.model
        return priced(usage, price_of(model, self._terms.prices, url=settings.base_url, keyless=keyless))

    async def hold(self, directory: Path) -> Session:
        """Run it to its end with `directory` for its own files. Raises `Fault` unless it can be judged."""
        if nothing_left := replace(self._request.limits, trials=None).reached_by(Usage()):
            raise Fault(
                Failure.BUDGET,
                f"the session was given a budget of {nothing_left[2]:g} {nothing_left[0]}",
                hint="raise the budget",
            )
        home = directory / "home"
        try:
            (home / "tmp").mkdir(parents=True)
            self._bring_back(home)
            talk = self._arrange(directory, home)
        except OSError as error:
            raise Fault(
                Failure.MISSING,
                f"the files of a session cannot be written: {error}",
                hint="make the directory writable or free some space, then try again",
            ) from error
        try:
            await talk.run()
        finally:
            self._layers, self._bounded_by = surroundings(directory / _BEGUN, self._bounds)
            self._resumable = self._terms.kept.keep(self._token, home, self._terms.secrets.hide)
        return self._conclude()

    def _bring_back(self, home: Path) -> None:
        resume = self._request.resume
        if resume is not None and not self._terms.kept.bring_back(resume, home):
            raise Fault(
                Failure.REFUSED,
                f"there is no session {resume} of Claude to resume",
                hint=f"start a new one; sessions are kept for {self._terms.settings.resume_days} days",
            )

    def _arrange(self, directory: Path, home: Path) -> Talk:
        workspace = self._workspace or home / "work"
        workspace.mkdir(exist_ok=True)
        environment = make_environment(
            self._terms.environment, self._terms.settings, home=home, sdk_version=self._program.sdk_version
        )
        environment |= self._request.environment
        files = [path for server in self._request.mcp_servers for path in server.named_files()]
        policy = Policy(
            # The program must reach its endpoint, and it has no sandbox of its own.
            network=True,
            see_system=True,
            readable=(
                directory,
                *program_places(self._program.path),
                *files,
                *self._terms.readable,
                *self._request.readable,
            ),
            writable=(home, workspace),
            places=self._request.places,
            read_only=(workspace / ".git",) if (workspace / ".git").exists() else (),
            hidden=self._private((directory, workspace, *self._request.readable)),
            environment={**environment, KEY_VARIABLE: ""},
        )
        options = make_options(
            self._request,
            self._terms,
            token=self._token,
            directory=directory,
            workspace=workspace,
            launcher=write_launcher(directory, self._sandboxed(workspace, policy, directory / _BEGUN)),
            environment=environment,
            hearing=self._hearing,
        )
        bounds = TimeBounds(self._ends_at, out_of_time(self._request), self._terms.settings.idle_seconds)
        return Talk(options, self._request, hearing=self._hearing, leash=Leash(directory), bounds=bounds)

    def _private(self, shown: tuple[Path, ...]) -> tuple[Path, ...]:
        places = private_places(self._terms.home, self._terms.environment, shown, self._request.hidden)
        # The program may have been installed beside a person's keys.
        return tuple(place for place in places if not self._program.path.is_relative_to(place))

    @property
    def _bounds(self) -> Bounds:
        return Bounds(
            wall_seconds=self._seconds + _GRACE_SECONDS,
            memory_bytes=None,
            processes=_PROCESSES,
            file_bytes=None,
        )

    def _sandboxed(self, workspace: Path, policy: Policy, begun: Path) -> list[str]:
        argv = with_key(self._program.path)
        return wrapped(argv, cwd=workspace, policy=policy, bounds=self._bounds, begun=begun)

    def _conclude(self) -> Session:
        heard = self._hearing
        if fault := check_budget(self._request, heard.usage):
            raise fault
        result = heard.result
        assert result is not None, "a talk that ended well has a result"
        check_ending(result, names=self._terms.names, retry_after=heard.retry_after)
        if not heard.spoke:
            raise Fault(
                Failure.BAD_OUTPUT,
                "Claude ended without having said or done anything",
                hint="change the prompt, or try another model",
            )
        if self._request.output_schema is None:
            return self.session()
        heard.text = result.result or heard.text
        return self.session(self._answer(result.structured_output))

    def _answer(self, reported: Any) -> Any:
        schema = self._request.output_schema or {}
        try:
            if reported is None:
                raise NotAnAnswer("it gave none")
            return validate_answer(reported if wants_object(schema) else reported.get(ANSWER), schema)
        except NotAnAnswer as error:
            raise Fault(
                Failure.BAD_OUTPUT,
                f"Claude did not answer as it was asked: {error}",
                hint="make the prompt clearer about the answer, or try another model",
            ) from None
