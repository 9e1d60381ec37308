"""A real Runner, called by the official client in both of its ways."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from ratchet.agentkit import Misused, Runner, StateStore
from ratchet.agentkit.mcp_server import AgentListener
from ratchet.agentkit.mcp_server import served as made_server
from ratchet.agents.gateway import GatewayLimits
from tests.agentkit.servers import free_port, program
from tests.waiting import PATIENCE_SECONDS

RUNNER = '''
import threading
import time
from dataclasses import dataclass

from ratchet.agentkit import Runner, log, state

runner = Runner("trial", instructions="For tests.")
log.info("loading")
meeting = threading.Barrier(3, timeout=120)


@dataclass
class Point:
    x: int
    y: int


@runner.tool
def count(by: int = 1) -> dict:
    """Count up."""
    with state.edit() as s:
        s["count"] += by
    return {"count": s["count"]}


@runner.tool(name="shift", description="Move a point")
async def shifted(point: Point) -> Point:
    return Point(point.x + 1, point.y)


@runner.tool
def words() -> list:
    return ["a", "b"]


@runner.tool
def anything(kind: str):
    return {"text": "said", "list": [], "dict": {"a": [1]}, "none": None}[kind]


@runner.tool
def meet() -> str:
    """Blocks until three callers are here."""
    meeting.wait()
    return "met"


@runner.tool
def slow(path: str) -> str:
    """Says that it has begun, and ends a little later."""
    open(path, "w").close()
    time.sleep(1)
    return "ended well"


@runner.tool
def hang(path: str) -> str:
    """Says that it has begun, and never ends."""
    open(path, "w").close()
    threading.Event().wait()


@runner.tool
def fail(kind: str) -> str:
    if kind == "state":
        with state.edit() as s:
            s["count"] = -1
    if kind == "exit":
        raise SystemExit(3)
    raise LookupError("no such thing\\nat all")


@runner.resource("counts://now", mime_type="application/json")
def counts() -> dict:
    """What was counted."""
    return {"count": state.get("count")}


@runner.resource("echoes://{word}")
async def echo(word: str) -> str:
    """A word, again."""
    if word == "silence":
        raise LookupError("nothing to hear")
    return word + word


@runner.prompt
def ask_for(what: str) -> str:
    """Asks for something."""
    return f"Please bring {what}."


if __name__ == "__main__":
    runner.run()
'''


def _written(directory: Path) -> Path:
    (directory / "runner.py").write_text(RUNNER)
    (directory / "state_schema.json").write_text(
        '{"properties": {"count": {"type": "integer", "minimum": 0}}}'
    )
    (directory / "state.json").write_text('{"count": 0}')
    return directory


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    directory, port = _written(tmp_path_factory.mktemp("agent")), free_port()
    with program(directory, "runner.py", port, RATCHET_AGENT_ROLE="runner"):
        yield directory, port


def _called(port: int, mode: str, *calls: tuple[str, dict[str, Any]]) -> list[tuple[bool, Any, str]]:
    """Whether each call failed, what it gave, and its text."""

    async def call() -> list[tuple[bool, Any, str]]:
        async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
            answers = [await client.call_tool(tool, arguments) for tool, arguments in calls]
        texts = ["\n".join(getattr(block, "text", "") for block in answer.content) for answer in answers]
        return [
            (bool(answer.is_error), answer.structured_content, text)
            for answer, text in zip(answers, texts, strict=True)
        ]

    return asyncio.run(call())


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tools_answer_with_what_their_functions_return(served: tuple[Path, int], mode: str) -> None:
    directory, port = served
    before = StateStore(directory).read()["count"]
    answers = _called(
        port,
        mode,
        ("count", {"by": 2}),
        ("shift", {"point": {"x": 1, "y": 5}}),
        ("words", {}),
        ("anything", {"kind": "text"}),
        ("anything", {"kind": "list"}),
        ("anything", {"kind": "dict"}),
        ("anything", {"kind": "none"}),
    )
    assert [failed for failed, _, _ in answers] == [False] * 7
    assert [given for _, given, _ in answers] == [
        {"count": before + 2},
        {"x": 2, "y": 5},
        {"result": ["a", "b"]},
        {"result": "said"},
        {"result": []},
        {"result": {"a": [1]}},
        {"result": None},
    ]
    assert StateStore(directory).read() == {"count": before + 2}
    assert StateStore(directory).history(limit=1)[0].by == "runner"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_tool_that_raises_fails_alone_and_says_why(served: tuple[Path, int], mode: str) -> None:
    answers = _called(
        served[1],
        mode,
        ("fail", {"kind": "any"}),
        ("fail", {"kind": "state"}),
        ("count", {"by": "many"}),
        ("unknown", {}),
        ("fail", {"kind": "exit"}),
        ("words", {}),
    )
    assert [failed for failed, _, _ in answers] == [True, True, True, True, True, False]
    said = [text for _, _, text in answers]
    assert "LookupError" in said[0]
    assert "no such thing" in said[0]
    assert "state.count is refused by state_schema.json" in said[1]
    assert "integer" in said[2]
    assert "unknown" in said[3]
    assert "SystemExit: 3" in said[4]


def test_tools_are_listed_with_their_words_and_types(served: tuple[Path, int]) -> None:
    async def listed() -> dict[str, Any]:
        async with Client(f"http://127.0.0.1:{served[1]}/mcp") as client:
            assert client.instructions == "For tests."
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    tools = asyncio.run(listed())
    assert list(tools) == ["count", "shift", "words", "anything", "meet", "slow", "hang", "fail"]
    assert (tools["count"].description, tools["shift"].description) == ("Count up.", "Move a point")
    assert tools["count"].input_schema["properties"]["by"]["type"] == "integer"
    assert tools["meet"].input_schema["properties"] == {}


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_resources_and_prompts_are_listed_and_read(served: tuple[Path, int], mode: str) -> None:
    async def ask() -> None:
        async with Client(f"http://127.0.0.1:{served[1]}/mcp", mode=mode) as client:
            [resource] = (await client.list_resources()).resources
            [template] = (await client.list_resource_templates()).resource_templates
            [prompt] = (await client.list_prompts()).prompts
            assert (str(resource.uri), resource.description) == ("counts://now", "What was counted.")
            assert (template.uri_template, template.name) == ("echoes://{word}", "echo")
            assert [(prompt.name, each.name) for each in prompt.arguments or ()] == [("ask_for", "what")]
            [read] = (await client.read_resource("counts://now")).contents
            assert "count" in json.loads(getattr(read, "text", ""))
            [heard] = (await client.read_resource("echoes://ho")).contents
            assert getattr(heard, "text", "") == "hoho"
            [said] = (await client.get_prompt("ask_for", {"what": "milk"})).messages
            assert getattr(said.content, "text", "") == "Please bring milk."
            with pytest.raises(MCPError, match="nothing to hear"):
                await client.read_resource("echoes://silence")

    asyncio.run(ask())


def test_a_tool_that_blocks_does_not_stop_the_others(served: tuple[Path, int]) -> None:
    async def meet() -> list[str]:
        async with Client(f"http://127.0.0.1:{served[1]}/mcp") as client, asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.call_tool("meet", {})) for _ in range(2)]
            assert not (await client.call_tool("words", {})).is_error
            tasks.append(group.create_task(client.call_tool("meet", {})))
        return [task.result().structured_content["result"] for task in tasks]

    assert asyncio.run(meet()) == ["met"] * 3


HANGS = """
import threading
from ratchet.agentkit import Runner

runner = Runner("trial")
over, begun = threading.Event(), []

@runner.tool
def hang() -> str:
    begun.append(1)
    over.wait()
    return "over"

@runner.resource("trial://hang")
def hanging_resource() -> str:
    return hang()

@runner.tool
def answer() -> str:
    return "here"

@runner.tool
async def hanging() -> int:
    return len(begun)

@runner.tool
async def end() -> None:
    over.set()

runner.run()
"""


@pytest.mark.parametrize(
    # Two tools block, so that each may have half of the threads; all resources have a quarter.
    ("kind", "share"),
    [("tool", 20), pytest.param("resource", 10, marks=pytest.mark.soak)],
)
def test_calls_that_do_not_end_leave_threads_to_the_other_tools(
    kind: str, share: int, tmp_path: Path
) -> None:
    (tmp_path / "runner.py").write_text(HANGS)

    async def called(client: Client, tool: str) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await client.call_tool(tool, {})).structured_content

    async def hang(client: Client) -> Any:
        if kind == "tool":
            return (await client.call_tool("hang", {})).structured_content["result"]
        [found] = (await client.read_resource("trial://hang")).contents
        return found.text

    async def scenario(port: int) -> None:
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            hanging = [asyncio.create_task(hang(client)) for _ in range(45)]
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while await called(client, "hanging") != {"result": share}:
                        pass
                assert await called(client, "answer") == {"result": "here"}
            finally:
                await called(client, "end")
                answers = await asyncio.gather(*hanging)
        assert set(answers) == {"over"}

    port = free_port()
    with program(tmp_path, "runner.py", port):
        asyncio.run(scenario(port))


def test_every_call_is_in_the_log_with_its_outcome(served: tuple[Path, int]) -> None:
    _called(served[1], "auto", ("count", {}), ("fail", {"kind": "any"}), ("no\nsuch", {}))
    lines = (served[0] / "logs" / "runner.log").read_text().splitlines()
    assert lines[0].endswith("INFO agent: loading")
    calls = [line.partition(" agent: ")[2] for line in lines if " agent: call " in line][-3:]
    assert [re.sub(r"[\d.]+ ms", "MS", call) for call in calls] == [
        "call 'count' done in MS",
        "call 'fail' failed in MS",
        "call 'no\\nsuch' failed in MS",
    ]
    assert any("LookupError: no such thing" in line for line in lines)


@pytest.mark.parametrize(
    ("host", "path", "origin", "status"),
    [
        ("127.0.0.1:{port}", "/mcp", "", 200),
        ("localhost:{port}", "/mcp", "http://localhost:8125", 200),
        ("127.0.0.1:1", "/mcp", "", 421),
        ("evil.example", "/mcp", "", 421),
        ("127.0.0.1:{port}", "/mcp", "http://evil.example", 403),
        ("127.0.0.1:{port}", "/", "", 404),
    ],
)
def test_only_who_asks_for_this_address_is_let_in(
    served: tuple[Path, int], host: str, path: str, origin: str, status: int
) -> None:
    port = served[1]
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "0"},
            },
        }
    )
    sent = [
        f"POST {path} HTTP/1.1",
        f"Host: {host.format(port=port)}",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([f"Origin: {origin}"] if origin else []),
    ]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join([*sent, "", body]).encode())
        assert connection.makefile("rb").readline().split()[1] == str(status).encode()


def _end_when(begun: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)


def test_a_server_does_not_give_up_a_connection_that_the_gateway_may_be_about_to_use() -> None:
    """It cannot tell the gateway in time, however busy the machine is: that has long given it up by itself."""
    kept = AgentListener(made_server("notes", None, []), 1).config.timeout_keep_alive
    assert kept >= 60 * GatewayLimits().idle_backend_seconds


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_told_to_end_it_finishes_the_call_in_flight(tmp_path: Path, mode: str) -> None:
    directory, port, begun = _written(tmp_path), free_port(), tmp_path / "begun"

    async def call() -> Any:
        async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
            await client.list_tools()
            return (await client.call_tool("slow", {"path": str(begun)})).structured_content

    with program(directory, "runner.py", port) as process:
        ender = threading.Thread(target=_end_when, args=(begun, process))
        ender.start()
        assert asyncio.run(call()) == {"result": "ended well"}
        ender.join()
        assert process.wait(timeout=60) == 0
    assert "trial ended" in (directory / "logs" / "runner.log").read_text()


@pytest.mark.soak
def test_told_to_end_it_gives_up_a_call_that_does_not(tmp_path: Path) -> None:
    directory, port, begun = _written(tmp_path), free_port(), tmp_path / "begun"

    async def call() -> None:
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            await client.call_tool("hang", {"path": str(begun)})

    with program(directory, "runner.py", port) as process:
        ender = threading.Thread(target=_end_when, args=(begun, process))
        ender.start()
        with pytest.raises((ExceptionGroup, MCPError)):
            asyncio.run(call())
        ender.join()
        assert process.wait(timeout=60) == 1
    assert "were given up" in (directory / "logs" / "runner.log").read_text()


@pytest.mark.parametrize(
    ("file", "arguments", "said"),
    [
        ("runner.py", [], "0 arguments were given; start it with: python runner.py PORT"),
        ("runner.py", ["http"], "'http' is not a port"),
        ("runner.py", ["0"], "'0' is not a port"),
        ("runner.py", ["70000"], "'70000' is not a port"),
        ("tuner.py", ["8000"], "start it with: python tuner.py PORT ARCHITECT_PORT"),
    ],
)
def test_wrong_arguments_end_it_with_a_sentence(
    tmp_path: Path, file: str, arguments: list[str], said: str
) -> None:
    kind = file.removesuffix(".py").capitalize()
    (tmp_path / file).write_text(f"from ratchet.agentkit import {kind}\n{kind}('x').run()\n")
    done = subprocess.run([sys.executable, file, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_ends_it_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "runner.py").write_text("from ratchet.agentkit import Runner\nRunner('x').run()\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "runner.py", str(port)], cwd=tmp_path, capture_output=True, text=True
        )
    assert (done.returncode, f"port {port} cannot be had" in done.stderr) == (1, True)


def test_two_tools_of_one_name_are_refused() -> None:
    runner = Runner("twice")

    @runner.tool
    def same() -> None: ...

    with pytest.raises(Misused, match="two tools called same"):
        runner.tool(name="same")(lambda: None)
