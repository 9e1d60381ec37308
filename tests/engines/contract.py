"""What every engine must do. A test module subclasses the parts that its engine claims to fulfil:

    class TestCodex(EngineContract, EditingContract):
        @pytest.fixture
        def subject(self, place: Place, model_server: ModelServer) -> Subject:
            return CodexSubject(place, model_server)

Each method of the subject opens the engine so that its next session does what the method is called.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import (
    Engine,
    EngineTool,
    EventKind,
    Failure,
    McpServer,
    Request,
    Session,
    SessionEvent,
    SessionFailed,
)
from ratchet.kernel import Limits, Misuse
from tests.engines.conftest import Place
from tests.waiting import eventually_async

KEY = "key-3f9a61c27be84d05"
"""The key of every subject's engine. It may reach the endpoint and nothing else."""

BYSTANDER = {"BYSTANDER_PASSWORD": "hunter-2-hunter"}
"""A variable of the opening process that no engine needs."""

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number"}},
    "required": ["score"],
    "additionalProperties": False,
}


async def _answer(_given: Mapping[str, Any]) -> str:
    return "nothing"


TOOL = EngineTool("look", "Look at nothing.", {"type": "object", "properties": {}}, _answer)


class Subject(ABC):
    """An engine under test, opened with `KEY` as its key and with `BYSTANDER` in the environment around it."""

    deadline_seconds = 60.0
    patience_seconds = 120.0
    """How long an end may take that has been asked for, on a busy machine."""
    told_over_budget = 110
    """The fewest tokens that a session of 110 may tell of when its budget ends it."""

    @abstractmethod
    def says(self, *texts: str) -> Engine:
        """Says each text in a session of its own, using 100 tokens in and 10 out each time if it counts them."""

    @abstractmethod
    def falls_silent(self) -> Engine:
        """Starts, and then nothing comes any more."""

    @abstractmethod
    def cannot_connect(self) -> Engine:
        """Finds nobody at the other end."""

    def runs(self, command: str) -> Engine:
        """Runs a shell command in the workspace, then says "done". Only for an engine that edits files."""
        raise NotImplementedError


def propose(engine: Engine, request: Request) -> Session:
    return asyncio.run(engine.propose(request))


def fails(engine: Engine, request: Request) -> SessionFailed:
    with pytest.raises(SessionFailed) as caught:
        propose(engine, request)
    assert caught.value.session.engine == engine.name
    return caught.value


def lines(session: Session) -> list[dict[str, Any]]:
    return [json.loads(line) for line in session.transcript.splitlines()]


class EngineContract:
    """For every engine."""

    @pytest.fixture
    def request_(self, subject: Subject, workspace: Path) -> Callable[..., Request]:
        def request(prompt: str = "Do it.", **more: Any) -> Request:
            return Request(
                **{
                    "prompt": prompt,
                    "workspace": workspace,
                    "deadline_seconds": subject.deadline_seconds,
                    **more,
                }
            )

        return request

    def test_the_last_message_is_the_text(self, subject: Subject, request_: Callable[..., Request]) -> None:
        engine = subject.says("All is well.")
        session = propose(engine, request_())
        assert (session.text, session.engine, session.simulated) == ("All is well.", engine.name, False)

    def test_the_capabilities_are_those_that_are_tested(self, subject: Subject) -> None:
        claimed = {name for name, has in asdict(subject.says("x").capabilities).items() if has}
        tested = {name for part, name in _PARTS.items() if isinstance(self, part)}
        assert claimed == tested

    def test_what_it_cannot_do_is_refused_before_it_costs_anything(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        engine = subject.says("x")
        asked: dict[str, dict[str, Any]] = {
            "structured_output": {"output_schema": SCHEMA},
            "mcp_tools": {"mcp_servers": (McpServer("lab", argv=("true",)),)},
            "resumable": {"resume": "0193d4c5-0000-7000-8000-000000000000"},
            "own_tools": {"tools": (TOOL,)},
        }
        for capability, field in asked.items():
            if not getattr(engine.capabilities, capability):
                with pytest.raises(Misuse):
                    propose(engine, request_(**field))

    def test_it_is_ready(self, subject: Subject) -> None:
        readiness = asyncio.run(subject.says("x").check())
        assert readiness.ready, readiness

    def test_events_arrive_while_it_runs(self, subject: Subject, request_: Callable[..., Request]) -> None:
        heard: list[SessionEvent] = []

        async def run() -> bool:
            task = asyncio.create_task(subject.falls_silent().propose(request_(listen=heard.append)))
            try:
                await eventually_async(lambda: bool(heard) or task.done())
                return task.done()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        assert asyncio.run(run()) is False
        assert heard[0].kind is EventKind.STARTED

    def test_the_transcript_is_what_was_heard_as_lines_of_json(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        heard: list[SessionEvent] = []
        session = propose(subject.says("All is well."), request_(listen=heard.append))
        assert [(each["kind"], each["text"]) for each in lines(session)] == [
            (each.kind, each.text) for each in heard
        ]
        assert EventKind.MESSAGE in {each.kind for each in heard}

    def test_the_key_does_not_reach_the_transcript(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        session = propose(subject.says(f"My key is {KEY}."), request_())
        assert KEY.encode() not in session.transcript
        assert KEY not in session.text + repr(session.data)

    def test_the_deadline_ends_it(self, subject: Subject, request_: Callable[..., Request]) -> None:
        engine = subject.falls_silent()
        began = time.monotonic()
        failed = fails(engine, request_(deadline_seconds=1.5))
        assert failed.failure is Failure.TIMEOUT
        assert "1.5" in str(failed)
        assert time.monotonic() - began < 1.5 + subject.patience_seconds

    def test_cancelling_ends_it(self, subject: Subject, request_: Callable[..., Request]) -> None:
        async def run() -> float:
            task = asyncio.create_task(subject.falls_silent().propose(request_()))
            await asyncio.sleep(1)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return time.monotonic() - began

        assert asyncio.run(run()) < subject.patience_seconds

    def test_nobody_at_the_other_end_is_a_crash_that_may_be_tried_again(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        failed = fails(subject.cannot_connect(), request_())
        assert (failed.failure, failed.worked) == (Failure.CRASHED, False)
        assert failed.hint
        assert failed.session.usage.tokens == 0

    def test_two_sessions_at_once_do_not_meet(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        engine = subject.says("one", "two")

        async def run() -> list[Session]:
            return await asyncio.gather(*(engine.propose(request_(prompt)) for prompt in ("first", "second")))

        assert {session.text for session in asyncio.run(run())} == {"one", "two"}

    def test_the_wall_time_is_told(self, subject: Subject, request_: Callable[..., Request]) -> None:
        session = propose(subject.says("x"), request_())
        assert 0 < session.usage.wall_ms < subject.deadline_seconds * 1000


class UsageContract(EngineContract):
    """For an engine that reports usage."""

    def test_what_the_model_used_is_counted(self, subject: Subject, request_: Callable[..., Request]) -> None:
        heard: list[SessionEvent] = []
        usage = propose(subject.says("x"), request_(listen=heard.append)).usage
        assert (usage.input_tokens, usage.output_tokens) == (100, 10)
        told = [each.data for each in heard if each.kind is EventKind.USAGE]
        assert told[-1]["input_tokens"] + told[-1]["output_tokens"] == 110
        assert "model" in told[-1], "what is used on the way is charged to a model"

    def test_a_session_over_its_budget_has_failed_and_says_what_it_used(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        failed = fails(subject.says("x"), request_(limits=Limits(tokens=50)))
        assert failed.failure is Failure.BUDGET
        assert subject.told_over_budget <= failed.session.usage.tokens <= 110


class EditingContract(EngineContract):
    """For an engine that edits files."""

    def test_the_layers_of_its_sandbox_and_what_kept_its_bounds_are_told(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        told = propose(subject.runs("true"), request_()).data
        assert {"pid namespace", "mount namespace", "no new privileges"} <= set(told["layers"])
        assert {"wall_seconds", "processes"} <= set(told["bounded_by"])

    def test_what_it_writes_is_in_the_workspace(
        self, subject: Subject, request_: Callable[..., Request], workspace: Path
    ) -> None:
        session = propose(subject.runs("echo made > made.txt"), request_())
        assert (workspace / "made.txt").read_text() == "made\n"
        assert session.text == "done"

    def test_it_cannot_write_outside(
        self, subject: Subject, request_: Callable[..., Request], tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        engine = subject.runs(f"echo tried > tried.txt; echo x > {outside}/made.txt || true")
        propose(engine, request_())
        assert list(outside.iterdir()) == []
        assert (tmp_path / "workspace" / "tried.txt").exists()

    def test_its_commands_see_neither_the_key_nor_the_environment_around(
        self, subject: Subject, request_: Callable[..., Request], workspace: Path
    ) -> None:
        propose(subject.runs("env > seen.txt"), request_())
        seen = (workspace / "seen.txt").read_text()
        assert "PATH=" in seen
        assert KEY not in seen
        assert BYSTANDER.items().isdisjoint(line.partition("=")[::2] for line in seen.splitlines())

    def test_it_sees_neither_the_settings_nor_the_token_of_ratchet(
        self, subject: Subject, request_: Callable[..., Request], place: Place, workspace: Path
    ) -> None:
        engine = subject.runs(f"cat {place.home}/ratchet.toml {place.home}/token > seen.txt; true")
        (place.home / "token").write_text("a token")
        propose(engine, request_())
        assert (workspace / "seen.txt").read_text() == ""

    def test_it_does_not_see_what_is_hidden_from_it(
        self, subject: Subject, request_: Callable[..., Request], workspace: Path
    ) -> None:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            (Path(name) / "judge").mkdir()
            (Path(name) / "judge" / "answers").write_text("42")
            (Path(name) / "plain").write_text("seen")
            engine = subject.runs(f"cat {name}/plain {name}/judge/answers > seen.txt; true")
            propose(engine, request_(readable=(Path(name),), hidden=(Path(name) / "judge",)))
            assert (workspace / "seen.txt").read_text() == "seen"

    def test_it_sees_nothing_of_the_machine_s_data_that_it_was_not_given(
        self, subject: Subject, request_: Callable[..., Request], workspace: Path
    ) -> None:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            (Path(name) / "plain").write_text("seen")
            engine = subject.runs(f"cat {name}/plain /etc/shadow > seen.txt; true")
            propose(engine, request_())
        assert (workspace / "seen.txt").read_text() == ""

    def test_a_guard_is_obeyed_or_refused_but_never_ignored(
        self, subject: Subject, request_: Callable[..., Request], workspace: Path
    ) -> None:
        asked: list[str] = []

        async def forbid(tool: str, _input: Mapping[str, Any]) -> str:
            asked.append(tool)
            return "not today"

        try:
            propose(subject.runs("echo made > made.txt"), request_(guard=forbid))
        except Misuse:
            pass
        else:
            assert asked
        assert not (workspace / "made.txt").exists()

    def test_cancelling_ends_every_process_it_started(
        self, subject: Subject, request_: Callable[..., Request], workspace: Path
    ) -> None:
        beat = workspace / "beat"
        engine = subject.runs(
            "(trap '' TERM HUP INT; setsid sh -c 'while :; do echo >> beat; sleep 0.05; done') & "
            "while :; do sleep 1; done"
        )

        async def run() -> None:
            task = asyncio.create_task(engine.propose(request_()))
            await eventually_async(lambda: beat.exists() and beat.stat().st_size > 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(run())
        size = beat.stat().st_size
        time.sleep(0.3)
        assert beat.stat().st_size == size

    def test_a_process_left_behind_does_not_outlive_the_session(
        self, subject: Subject, request_: Callable[..., Request], workspace: Path
    ) -> None:
        left_behind = "setsid sh -c 'while :; do echo >> beat; sleep 0.05; done' >/dev/null 2>&1 &"
        command = f"{left_behind} while [ ! -s beat ]; do sleep 0.02; done"
        propose(subject.runs(command), request_())
        beat = workspace / "beat"
        size = beat.stat().st_size
        time.sleep(0.3)
        assert beat.stat().st_size == size


class StructuredContract(EngineContract):
    """For an engine that answers to a schema."""

    def test_an_answer_that_fits_is_the_output(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        session = propose(subject.says('{"score": 0.5}'), request_(output_schema=SCHEMA))
        assert session.output == {"score": 0.5}

    @pytest.mark.parametrize("text", ["not JSON at all", '{"score": "high"}', "{}", '{"score": NaN}'])
    def test_any_other_answer_is_bad_output(
        self, subject: Subject, request_: Callable[..., Request], text: str
    ) -> None:
        failed = fails(subject.says(*[text] * 5), request_(output_schema=SCHEMA))
        assert failed.failure is Failure.BAD_OUTPUT

    def test_a_schema_that_is_none_is_refused(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        with pytest.raises(Misuse):
            propose(subject.says("{}"), request_(output_schema={"type": "nothing like it"}))


class ResumableContract(EngineContract):
    """For an engine that can continue with a session."""

    def test_a_session_goes_on_where_it_was(self, subject: Subject, request_: Callable[..., Request]) -> None:
        engine = subject.says("one", "two")
        first = propose(engine, request_("first"))
        assert first.resume
        second = propose(engine, request_("second", resume=first.resume))
        assert second.text == "two"
        if engine.capabilities.reports_usage:
            assert second.usage.tokens == first.usage.tokens

    @pytest.mark.parametrize("token", ["0193d4c5-0000-7000-8000-000000000000", "../../etc/passwd"])
    def test_a_session_that_is_not_known_is_refused(
        self, subject: Subject, request_: Callable[..., Request], token: str
    ) -> None:
        failed = fails(subject.says("x"), request_(resume=token))
        assert (failed.failure, failed.worked) == (Failure.REFUSED, False)


class ToolsContract(EngineContract):
    """For an engine that gives MCP tools to its model. What they do is tested by each engine itself."""

    def test_a_server_that_does_not_start_is_a_failure(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        failed = fails(subject.says("x"), request_(mcp_servers=(McpServer("lab", argv=("false",)),)))
        assert failed.failure in (Failure.CRASHED, Failure.MISSING)
        assert failed.session.usage.tokens == 0


class OwnToolsContract(EngineContract):
    """For an engine whose model can use functions of this process. What they do is tested by each engine itself."""

    def test_a_session_may_have_tools_that_it_does_not_use(
        self, subject: Subject, request_: Callable[..., Request]
    ) -> None:
        assert propose(subject.says("fine"), request_(tools=(TOOL,))).text == "fine"


_PARTS: dict[type[EngineContract], str] = {
    EditingContract: "edits_files",
    StructuredContract: "structured_output",
    ToolsContract: "mcp_tools",
    ResumableContract: "resumable",
    UsageContract: "reports_usage",
    OwnToolsContract: "own_tools",
}
