"""One session of the Claude CLI: how it is set up, and what it came to."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratchet.engines.answer import NotAnAnswer, validate_answer
from ratchet.engines.claude.ending import check_ending
from ratchet.engines.claude.environment import make_environment
from ratchet.engines.claude.hearing import Hearing
from ratchet.engines.claude.launch import KEY_VARIABLE, Leash, with_key, write_launcher
from ratchet.engines.claude.options import ANSWER, make_options, wants_object
from ratchet.engines.claude.program import Program
from ratchet.engines.claude.talk import Talk, TimeBounds
from ratchet.engines.claude.terms import Terms
from ratchet.engines.claude.wording import hidden
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.prices import price_of, priced
from ratchet.engines.privacy import private_places
from ratchet.engines.session import Request, Session
from ratchet.engines.supervision import check_budget, out_of_time, seconds_for
from ratchet.engines.transcript import Transcript
from ratchet.kernel import Usage
from ratchet.sandbox import Bounds, Policy, command_layers, wrapped

# An agent runs compilers and test suites; the limits here only stop what runs wild.
_PROCESSES = 4096
# The sandbox ends what is left when this process could not.
_GRACE_SECONDS = 30.0


class Sitting:
    def __init__(self, terms: Terms, program: Program, request: Request, transcript: Transcript) -> None:
        self._terms = terms
        self._program = program
        self._request = request
        self._transcript = transcript
        self._token = str(uuid.uuid4())
        self._resumable = False
        self._layers: tuple[str, ...] = ()
        self._seconds = seconds_for(request)
        self._ends_at = time.monotonic() + self._seconds
        self._workspace = request.workspace.resolve() if request.workspace else None
        self._hearing = Hearing(
            request,
            transcript,
            ends_at=self._ends_at,
            workspace=self._workspace,
            hide=terms.secrets.hide,
        )

    @property
    def worked(self) -> bool:
        return self._hearing.worked

    def session(self, output: Any = None) -> Session:
        """What the session came to so far."""
        heard, hide = self._hearing, self._terms.secrets.hide
        data: dict[str, Any] = {"program": self._program.version, "denied": list(heard.denied.values())}
        data["layers"] = list(self._layers)
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
            see_everything=True,
            # Listed for when they lie in the machine's /tmp, which is not shown.
            readable=(
                directory,
                self._program.path.parent,
                *files,
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
            launcher=write_launcher(directory, self._sandboxed(workspace, policy)),
            environment=environment,
            hearing=self._hearing,
        )
        bounds = TimeBounds(self._ends_at, out_of_time(self._request), self._terms.settings.idle_seconds)
        return Talk(options, self._request, hearing=self._hearing, leash=Leash(directory), bounds=bounds)

    def _private(self, shown: tuple[Path, ...]) -> tuple[Path, ...]:
        places = private_places(self._terms.home, self._terms.environment, shown, self._request.hidden)
        # The program may have been installed beside somebody's keys.
        return tuple(place for place in places if not self._program.path.is_relative_to(place))

    def _sandboxed(self, workspace: Path, policy: Policy) -> list[str]:
        bounds = Bounds(
            wall_seconds=self._seconds + _GRACE_SECONDS,
            memory_bytes=None,
            processes=_PROCESSES,
            file_bytes=None,
        )
        self._layers = tuple(map(str, command_layers(policy)))
        return wrapped(with_key(self._program.path), cwd=workspace, policy=policy, bounds=bounds)

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

    def _answer(self, told: Any) -> Any:
        schema = self._request.output_schema or {}
        try:
            if told is None:
                raise NotAnAnswer("it gave none")
            return validate_answer(told if wants_object(schema) else told.get(ANSWER), schema)
        except NotAnAnswer as error:
            raise Fault(
                Failure.BAD_OUTPUT,
                f"Claude did not answer as it was asked: {error}",
                hint="make the prompt clearer about the answer, or try another model",
            ) from None
