"""A model uses the tools of real MCP servers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import EventKind, Failure, McpServer, Request
from ratchet.engines.engine import EngineTool
from ratchet.engines.llm.tools import ToolSurface, tools_of
from ratchet.kernel import Misuse
from ratchet.modelserver import ModelServer, ScriptedCall, Turn, call, call_mcp, hang, say
from tests.cancelling import refusing_server, unheeded_moments
from tests.engines.conftest import Place
from tests.engines.contract import SCHEMA, fails, lines, propose
from tests.engines.llm.subject import LlmSubject
from tests.waiting import eventually_async

PROGRAM = str(Path(__file__).with_name("lab.py"))
LAB = McpServer("lab", argv=(sys.executable, PROGRAM))
HI = Request("Add 2 and 3.", mcp_servers=(LAB,), deadline_seconds=60)


@pytest.fixture
def listening() -> Iterator[McpServer]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, PROGRAM, str(port)])
    try:
        asyncio.run(eventually_async(lambda: _answers(port)))
        yield McpServer("lab", url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_tool_is_called_and_its_result_goes_to_the_model(
    place: Place, model_server: ModelServer, kind: str
) -> None:
    llm = LlmSubject(place, model_server, kind)
    session = propose(llm.open(call_mcp("lab", "add", a=2, b=3), say("It is 5.")), HI)
    assert session.text == "It is 5."
    assert "mcp__lab__add" in llm.script.requests[0].tools
    assert llm.script.requests[1].results == ("5",)
    told = [(each["kind"], each["text"]) for each in lines(session) if each["kind"].startswith("tool")]
    assert told == [(EventKind.TOOL_CALL, "mcp__lab__add"), (EventKind.TOOL_RESULT, "5")]


@pytest.mark.soak
def test_a_server_that_listens_can_be_used(llm: LlmSubject, listening: McpServer) -> None:
    engine = llm.open(call_mcp("lab", "add", a=2, b=3), say("It is 5."))
    propose(engine, replace(HI, mcp_servers=(listening,)))
    assert llm.script.requests[1].results == ("5",)


@pytest.mark.soak
def test_several_calls_are_answered_in_order_and_the_answer_may_be_structured(llm: LlmSubject) -> None:
    both = Turn(calls=tuple(ScriptedCall("add", {"a": n, "b": n}, namespace="mcp__lab") for n in (1, 2)))
    engine = llm.open(both, Turn(text='{"score": 6}'))
    assert propose(engine, replace(HI, output_schema=SCHEMA)).output == {"score": 6}
    assert llm.script.requests[1].results == ("2", "4")


@pytest.mark.soak
def test_mistakes_are_told_to_the_model(llm: LlmSubject) -> None:
    mistakes = [
        call_mcp("lab", "fail"),
        call_mcp("lab", "multiply", a=1),
        call_mcp("lab", "add", a=1),
        call_mcp("lab", "add", a="one", b=2),
        Turn(calls=(ScriptedCall("add", '{"a": ', namespace="mcp__lab"),)),
    ]
    assert propose(llm.open(*mistakes, say("Sorry.")), HI).text == "Sorry."
    failed, unknown, *unusable = llm.script.requests[-1].results
    assert failed.startswith("Error: ")
    assert unknown.startswith("Error: there is no tool 'mcp__lab__multiply'; there are: mcp__lab__add")
    assert [each.startswith("Error: the arguments cannot be used: ") for each in unusable] == [True] * 3


@pytest.mark.soak
def test_a_model_that_only_calls_tools_is_ended(llm: LlmSubject) -> None:
    turn = replace(call_mcp("lab", "add", a=1, b=1), repeat="always")
    failed = fails(llm.open(turn, llm="turns = 3"), HI)
    assert (failed.failure, len(llm.script.requests)) == (Failure.BAD_OUTPUT, 3)
    assert "no answer in 3 turns" in str(failed)


@pytest.mark.soak
def test_a_server_that_dies_is_a_crash(llm: LlmSubject) -> None:
    failed = fails(llm.open(call_mcp("lab", "die"), say("never")), HI)
    assert failed.failure is Failure.CRASHED
    assert "MCP server" in str(failed)


@pytest.mark.soak
def test_one_of_two_servers_that_does_not_start_fails_the_session(llm: LlmSubject) -> None:
    servers = (LAB, McpServer("gone", argv=("/nowhere/at/all",)))
    failed = fails(llm.open(say("never")), replace(HI, mcp_servers=servers))
    assert (failed.failure, failed.worked) == (Failure.CRASHED, False)
    assert "the MCP server gone cannot be used" in str(failed)


@pytest.mark.soak
def test_a_server_gets_its_own_variables_and_not_the_keys(llm: LlmSubject) -> None:
    server = replace(LAB, environment={"LAB_NAME": "north"})
    engine = llm.open(call_mcp("lab", "environment"), say("ok"))
    propose(engine, replace(HI, mcp_servers=(server,)))
    names = llm.script.requests[1].results[0].split()
    assert "LAB_NAME" in names
    assert {"MODEL_KEY", "BYSTANDER_PASSWORD"}.isdisjoint(names)


@pytest.mark.soak
def test_cancelling_ends_the_server_and_what_it_started(llm: LlmSubject, tmp_path: Path) -> None:
    engine = llm.open(call_mcp("lab", "leave_behind", directory=str(tmp_path)), hang())
    beat = tmp_path / "beat"

    async def run() -> None:
        task = asyncio.create_task(engine.propose(replace(HI, workspace=tmp_path)))
        await eventually_async(lambda: beat.exists() and len(llm.script.requests) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    size = beat.stat().st_size
    time.sleep(0.3)
    assert beat.stat().st_size == size


def noting(notes: list[Mapping[str, Any]]) -> EngineTool:
    async def note(given: Mapping[str, Any]) -> str:
        if given["score"] < 0:
            raise ValueError("a score is not negative")
        notes.append(given)
        return f"noted {given['score']}"

    return EngineTool("note", "Note a score.", SCHEMA, note)


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_a_tool_of_this_process_is_listed_called_and_answered(
    place: Place, model_server: ModelServer, kind: str
) -> None:
    llm = LlmSubject(place, model_server, kind)
    notes: list[Mapping[str, Any]] = []
    propose(
        llm.open(call_mcp("ratchet", "note", score=1.5), say("ok")), Request("Go.", tools=(noting(notes),))
    )
    assert notes == [{"score": 1.5}]
    assert llm.script.requests[0].tools == ("mcp__ratchet__note",)
    assert llm.script.requests[1].results == ("noted 1.5",)


def test_what_a_tool_raises_and_what_does_not_fit_it_is_told_to_the_model(llm: LlmSubject) -> None:
    notes: list[Mapping[str, Any]] = []
    turns = [call_mcp("ratchet", "note", score=-1), call_mcp("ratchet", "note", score="high"), say("ok")]
    propose(llm.open(*turns), Request("Go.", tools=(noting(notes),)))
    raised, unfit = llm.script.requests[-1].results
    assert (notes, raised) == ([], "Error: ValueError: a score is not negative")
    assert "'high' is not of type 'number'" in unfit


def test_a_guard_can_forbid_a_tool_and_the_session_says_so(llm: LlmSubject) -> None:
    async def guard(tool: str, given: Mapping[str, Any]) -> str | None:
        return "too high" if given["score"] > 10 else None

    notes: list[Mapping[str, Any]] = []
    turns = [call_mcp("ratchet", "note", score=11), call_mcp("ratchet", "note", score=9), say("ok")]
    session = propose(llm.open(*turns), Request("Go.", tools=(noting(notes),), guard=guard))
    assert notes == [{"score": 9}]
    assert session.data["denied"] == [{"tool": "mcp__ratchet__note", "reason": "too high"}]
    assert any(each["kind"] == EventKind.NOTE and "too high" in each["text"] for each in lines(session))


def test_a_guard_that_fails_forbids(llm: LlmSubject) -> None:
    async def guard(tool: str, given: Mapping[str, Any]) -> str | None:
        raise LookupError("no rules")

    notes: list[Mapping[str, Any]] = []
    engine = llm.open(call_mcp("ratchet", "note", score=1), say("ok"))
    propose(engine, Request("Go.", tools=(noting(notes),), guard=guard))
    assert notes == []
    assert "the guard failed: LookupError: no rules" in llm.script.requests[1].results[0]


def test_a_tool_with_a_broken_schema_is_refused(llm: LlmSubject) -> None:
    broken = replace(noting([]), input_schema={"type": "nothing like it"})
    with pytest.raises(Misuse, match="not a JSON Schema"):
        propose(llm.open(say("x")), Request("Go.", tools=(broken,)))


def test_a_tool_that_nobody_gave_is_not_there(llm: LlmSubject) -> None:
    propose(llm.open(call("shell"), say("ok")), replace(HI, mcp_servers=()))
    assert llm.script.requests[1].results == ("Error: there is no tool 'shell'; there are: none",)


@pytest.mark.soak
def test_connecting_ends_as_cancelled_at_whichever_moment_it_is_cancelled() -> None:
    async def connect(url: str) -> None:
        surface = ToolSurface(workspace=None, path="", seconds=60.0)
        async with tools_of([McpServer("lab", url=url)], surface):
            raise AssertionError("nobody answers")

    with refusing_server() as url:
        assert unheeded_moments(lambda: connect(url)) == []
