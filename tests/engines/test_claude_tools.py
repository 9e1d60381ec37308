"""What a session of Claude may use, who decides about it, and what is told about it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import EngineTool, EventKind, Failure, McpServer, Request, SessionEvent
from ratchet.kernel import Misuse
from ratchet.modelserver import ModelServer, call, call_mcp, say
from tests.engines.claude_subject import ClaudeSubject
from tests.engines.conftest import Place
from tests.engines.contract import fails, propose

SERVER = """
import os, sys
from mcp.server import MCPServer

server = MCPServer("adder", log_level="ERROR")

@server.tool()
async def add(a: int, b: int) -> str:
    return f"{a + b} {os.environ.get('UNIT', '')}".strip()

if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response=True, stateless_http=True)
else:
    server.run("stdio")
"""


@pytest.fixture
def subject(place: Place, model_server: ModelServer) -> ClaudeSubject:
    return ClaudeSubject(place, model_server)


@pytest.fixture
def server_file(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
def listening(server_file: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, server_file, str(port)])
    try:
        limit = time.monotonic() + 60
        while not _answers(port):
            assert time.monotonic() < limit
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def noting(notes: list[Mapping[str, Any]]) -> EngineTool:
    async def note(given: Mapping[str, Any]) -> str:
        if given["score"] < 0:
            raise ValueError("a score is not negative")
        notes.append(given)
        return f"noted {given['score']}"

    schema = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}
    return EngineTool("note", "Note a score.", schema, note)


@pytest.mark.soak
def test_a_tool_of_this_process_is_listed_called_and_answered(
    subject: ClaudeSubject, workspace: Path
) -> None:
    notes: list[Mapping[str, Any]] = []
    engine = subject.plays([call_mcp("ratchet", "note", score=1.5), say("done")])
    propose(engine, Request("Do it.", workspace=workspace, tools=(noting(notes),)))
    assert notes == [{"score": 1.5}]
    assert "mcp__ratchet__note" in subject.script.requests[0].tools
    assert subject.script.requests[1].results == ("noted 1.5",)


@pytest.mark.soak
def test_what_a_tool_raises_and_what_does_not_fit_it_is_told_to_the_model(
    subject: ClaudeSubject, workspace: Path
) -> None:
    notes: list[Mapping[str, Any]] = []
    engine = subject.plays(
        [call_mcp("ratchet", "note", score=-1), call_mcp("ratchet", "note", score="high"), say("done")]
    )
    propose(engine, Request("Do it.", workspace=workspace, tools=(noting(notes),)))
    assert notes == []
    assert "not negative" in subject.script.requests[1].results[-1]
    assert (
        "score" in subject.script.requests[2].results[-1] or "high" in subject.script.requests[2].results[-1]
    )


@pytest.mark.soak
def test_a_guard_can_forbid_any_tool_and_the_session_says_so(subject: ClaudeSubject, workspace: Path) -> None:
    async def guard(tool: str, given: Mapping[str, Any]) -> str | None:
        return "not that one" if "secret" in str(given.get("file_path")) else None

    heard: list[SessionEvent] = []
    engine = subject.plays(
        [
            call("Write", file_path=str(workspace / "secret.txt"), content="x"),
            call("Write", file_path=str(workspace / "plain.txt"), content="x"),
            say("done"),
        ]
    )
    session = propose(engine, Request("Do it.", workspace=workspace, guard=guard, listen=heard.append))
    assert {path.name for path in workspace.glob("*.txt")} == {"plain.txt"}
    assert [(each["tool"], each["reason"]) for each in session.data["denied"]] == [("Write", "not that one")]
    assert any(each.kind is EventKind.NOTE and "not that one" in each.text for each in heard)


@pytest.mark.soak
def test_a_guard_that_fails_forbids(subject: ClaudeSubject, workspace: Path) -> None:
    async def guard(tool: str, given: Mapping[str, Any]) -> str | None:
        raise ZeroDivisionError

    engine = subject.plays([call("Bash", command="echo made > made.txt"), say("done")])
    propose(engine, Request("Do it.", workspace=workspace, guard=guard))
    assert not (workspace / "made.txt").exists()


@pytest.mark.soak
def test_a_write_outside_the_workspace_is_denied_and_reported(
    subject: ClaudeSubject, workspace: Path, tmp_path: Path
) -> None:
    heard: list[SessionEvent] = []
    outside = tmp_path / "outside.txt"
    engine = subject.plays([call("Write", file_path=str(outside), content="x"), say("I wrote it.")])
    session = propose(engine, Request("Do it.", workspace=workspace, listen=heard.append))
    assert not outside.exists()
    assert [each["tool"] for each in session.data["denied"]] == ["Write"]
    assert any(each.kind is EventKind.NOTE and "Write was denied" in each.text for each in heard)


@pytest.mark.soak
def test_what_is_done_is_told_while_it_is_done(subject: ClaudeSubject, workspace: Path) -> None:
    heard: list[SessionEvent] = []
    new, old = workspace / "new.txt", workspace / "README.md"
    engine = subject.plays(
        [
            call("Write", file_path=str(new), content="x"),
            call("Read", file_path=str(old)),
            call("Edit", file_path=str(old), old_string="A project", new_string="The project"),
            call("Bash", command="exit 3"),
            say("done"),
        ]
    )
    propose(engine, Request("Do it.", workspace=workspace, listen=heard.append))
    assert [e.text for e in heard if e.kind is EventKind.TOOL_CALL] == ["Write", "Read", "Edit", "Bash"]
    assert [(e.text, e.data["change"]) for e in heard if e.kind is EventKind.FILE_CHANGE] == [
        ("new.txt", "create"),
        ("README.md", "update"),
    ]
    failed = [e.data["tool"] for e in heard if e.kind is EventKind.TOOL_RESULT and e.data["failed"]]
    assert failed == ["Bash"]
    assert old.read_text() == "The project.\n"


@pytest.mark.soak
def test_a_session_gets_the_tools_of_its_servers(
    subject: ClaudeSubject, workspace: Path, listening: str, server_file: Path
) -> None:
    servers = (
        McpServer("web", url=listening),
        McpServer("pipe", argv=(sys.executable, str(server_file)), environment={"UNIT": "metres"}),
    )
    engine = subject.plays([call_mcp("web", "add", a=1, b=2), call_mcp("pipe", "add", a=3, b=4), say("done")])
    session = propose(engine, Request("Do it.", workspace=workspace, mcp_servers=servers))
    first, second, third = subject.script.requests
    assert {"mcp__web__add", "mcp__pipe__add"} <= set(first.tools)
    assert ("3" in second.results[-1], "7 metres" in third.results[-1]) == (True, True)
    assert session.data["denied"] == []


@pytest.mark.soak
def test_a_server_that_nobody_answers_for_is_a_failure_before_anything_is_asked(
    subject: ClaudeSubject, workspace: Path
) -> None:
    servers = (McpServer("lab", url="http://127.0.0.1:9/mcp"),)
    failed = fails(subject.plays([say("x")]), Request("Do it.", workspace=workspace, mcp_servers=servers))
    assert (failed.failure, failed.worked, subject.script.left) == (Failure.CRASHED, False, 1)
    assert "lab" in str(failed)


@pytest.mark.parametrize("names", [("a b",), ("a__b",), ("ratchet",), ("lab", "lab"), ("",)])
def test_names_that_could_be_mistaken_are_refused(
    subject: ClaudeSubject, workspace: Path, names: tuple[str, ...]
) -> None:
    servers = tuple(McpServer(name, argv=("true",)) for name in names)
    with pytest.raises(Misuse):
        propose(
            subject.plays([say("x")]),
            Request("Do it.", workspace=workspace, mcp_servers=servers, tools=(noting([]),)),
        )


@pytest.mark.soak
def test_a_tool_that_never_answers_does_not_hold_up_a_cancellation(
    subject: ClaudeSubject, workspace: Path
) -> None:
    begun = asyncio.Event()

    async def wait(given: Mapping[str, Any]) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    tool = EngineTool("wait", "Wait.", {"type": "object", "properties": {}}, wait)
    engine = subject.plays([call_mcp("ratchet", "wait"), say("done")])

    async def run() -> None:
        task = asyncio.create_task(engine.propose(Request("Do it.", workspace=workspace, tools=(tool,))))
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 20)

    asyncio.run(run())


@pytest.mark.soak
def test_only_the_tools_of_the_settings_are_offered(subject: ClaudeSubject, workspace: Path) -> None:
    propose(subject.plays([say("x")], tools=["Read", "Bash"]), Request("Do it.", workspace=workspace))
    assert set(subject.script.requests[0].tools) == {"Read", "Bash"}
    propose(subject.plays([say("x")], tools=[]), Request("Do it.", workspace=workspace))
    assert subject.script.requests[0].tools == ()
