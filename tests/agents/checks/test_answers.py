"""The third and the fourth check, with real servers: both start, and they answer the canary calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.checks import VersionJudge
from ratchet.agents.checks.canary import (
    MAX_TOOL_BYTES,
    check_calls,
    check_state_after,
    check_tools,
    read_calls,
    started,
)
from ratchet.agents.checks.files import NotPassed
from ratchet.agents.contract import Role, ToolShape
from ratchet.config.workflow_settings import Agents
from ratchet.judges.judge import Deadline
from ratchet.judges.scratch import copied
from ratchet.kernel import Outcome
from tests.agents.checks.conftest import Check, sections
from tests.agents.specimens import write_agent

GREETS = {"tool": "greet", "arguments": {"name": "Eve"}}


def write_canary(agent: Path, *calls: dict[str, Any]) -> None:
    (agent / "canary.json").write_text(json.dumps(calls))


def everything_in(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.soak
def test_a_good_version_passes_and_is_left_as_it_was(check: Check, agent: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    old = "def test_old(): assert True\n"
    (base / "tests.py").write_text(old)
    (agent / "tests.py").write_text((agent / "tests.py").read_text() + old)
    write_canary(
        agent,
        {"tool": "greet", "arguments": {"name": "Ada"}, "expect": {"equals": "hello, Ada"}},
        {"tool": "count", "arguments": {}, "expect": {"equals": 1}},
        {
            "tool": "feedback",
            "arguments": {"text": "shorter", "rating": 3},
            "server": "tuner",
            "expect": {"contains": "noted"},
        },
    )
    before = everything_in(agent)
    checked = check(agent, base=base)
    verdict = checked.judged.verdict
    assert verdict.outcome is Outcome.PASSED, verdict.reason
    assert (verdict.judge, verdict.judge_hash) == ("version", VersionJudge(Agents(), "greeter", base).hash)
    assert [tool.name for tool in checked.tools] == ["greet", "count"]
    assert [tool.name for tool in checked.surface.offers] == ["tuner feedback"]
    assert everything_in(agent) == before

    found = sections(checked)
    assert list(found) == ["files", "tests", "start-up", "canary", "predecessor's tests"]
    assert verdict.reason == "passed files, tests, start-up, canary, predecessor's tests"
    assert (found["tests"]["tests"], found["tests"]["exit_code"]) == (2, 0)
    assert (found["start-up"]["runner_tools"], found["start-up"]["tuner_tools"]) == (
        ["greet", "count"],
        ["feedback"],
    )
    assert "pid namespace" in found["start-up"]["layers"]
    assert [answer["text"] for answer in found["canary"]["answers"]] == ["hello, Ada", "1", "noted"]
    assert (found["predecessor's tests"]["outcome"], found["predecessor's tests"]["tests"]) == ("passed", 1)
    assert verdict.measurements["tests.tests"] == 2
    assert verdict.measurements["canary.calls"] == 3


@pytest.mark.soak
def test_a_server_that_hangs_at_its_start_fails_in_time(check: Check, tmp_path: Path) -> None:
    agent = write_agent(tmp_path / "staging", broken="hangs")
    (agent / "tests.py").unlink()
    checked = check(agent, start_seconds=2)
    verdict = checked.judged.verdict
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason.startswith("start-up: runner.py did not answer within 2 s")
    assert list(sections(checked)) == ["files", "start-up"]


def test_a_server_that_ends_at_its_start_fails_with_what_it_printed(check: Check, tmp_path: Path) -> None:
    agent = write_agent(tmp_path / "staging", broken="exits")
    (agent / "tests.py").unlink()
    verdict = check(agent).judged.verdict
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason.startswith("start-up: runner.py ended with exit code 1")
    assert verdict.reason.endswith("It printed at the end:\nthere is nobody to greet")


@pytest.mark.soak
def test_a_call_that_is_not_answered_as_it_should_be_fails(agent: Path, tmp_path: Path) -> None:
    """One pair of servers for all that can be wrong with a call; the last one ends it."""
    settings, deadline = Agents(), Deadline(None)
    write_agent(agent, tools=("greet", "crash"))

    async def reasons() -> list[str]:
        running = await copied(agent, tmp_path / "running")
        found = []
        async with started(running, settings, {}, agent="greeter") as pair:
            for call in (
                {"tool": "greet", "arguments": {"name": "Ada"}, "expect": {"contains": "good day"}},
                {"tool": "greet", "arguments": {"who": "Ada"}},
                {"tool": "greet", "arguments": {}, "server": "tuner"},
                {"tool": "crash", "arguments": {}},
            ):
                answers: list[Any] = []
                calls = read_calls(json.dumps([GREETS, call]).encode())
                with pytest.raises(NotPassed) as raised:
                    await check_calls(pair, calls, settings, answers)
                found.append(str(raised.value))
                assert answers[0] == {"call": ANY, "failed": False, "text": "hello, Eve", "structured": ANY}
        (running / "state_schema.json").write_text("{}")
        StateStore(running).increment("greeted", -100)
        with pytest.raises(NotPassed) as raised:
            await check_state_after(agent, running, deadline)
        return [*found, str(raised.value)]

    unmet, error, unknown, crash, state = asyncio.run(reasons())
    assert unmet == (
        'runner: greet({"name": "Ada"}): the answer is not as expected:'
        " it does not contain 'good day'; it is 'hello, Ada'"
    )
    assert error.startswith('runner: greet({"who": "Ada"}): it answered with the error')
    assert unknown == "canary.json calls tuner: greet({}), but the tuner has only feedback"
    assert crash.startswith("runner: crash({}): no answer")
    assert "exit code 7" in crash
    assert state.startswith("after the calls of canary.json: ")
    assert "greeted" in state


OBJECT = {"type": "object"}
GOOD = ToolShape("good", "", OBJECT)


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ((), "the tuner has no tools"),
        ((GOOD, GOOD), "the tuner has 2 tools called 'good'"),
        ((ToolShape("a b", "", OBJECT),), "a tool called 'a b'"),
        ((ToolShape("a", "", {"type": "array"}),), 'must say "type": "object"'),
        ((ToolShape("a", "", {"type": "object", "required": 1}),), "the input schema of tuner.a"),
        ((ToolShape("a", "", OBJECT, {"type": "objekt"}),), "the output schema of tuner.a"),
        ((ToolShape("a", "\0", OBJECT),), "no plain text"),
        ((ToolShape("a", "\ud800", OBJECT),), "no plain text"),
        ((ToolShape("a", "long" * MAX_TOOL_BYTES, OBJECT),), "no plain text"),
    ],
    ids=["none", "twice", "name", "array", "input", "output", "nul", "surrogate", "long"],
)
def test_tools_that_no_caller_could_understand_fail(
    tmp_path: Path, tools: tuple[ToolShape, ...], reason: str
) -> None:
    found = {Role.RUNNER: (GOOD,), Role.TUNER: tools}
    with pytest.raises(NotPassed) as raised:
        asyncio.run(check_tools(found, tmp_path, Deadline(None)))
    assert reason in str(raised.value)
