"""Tools of MCP servers as tools: started for a call and gone after it, or reached at their address."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from ratchet.runtime import Runtime, open_ledger, open_runtime
from ratchet.tools.call import ToolCallFailed
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.mcp_tools import KeptServers, list_server_tools, without_patterns
from tests.agentkit.servers import free_port, program
from tests.engines.llm import lab
from tests.runtime.worker_process import load
from tests.tools.bench import Bench

LAB = Path(lab.__file__)


@pytest.fixture(scope="module")
def far() -> Iterator[str]:
    """A server that listens, for all that is not about starting one: that takes seconds."""
    port = free_port()
    with program(LAB.parent, LAB.name, port):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(scope="module")
def place(far: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    home = tmp_path_factory.mktemp("home")
    servers = {
        "tools.mcp.lab.argv": f"{sys.executable} {LAB}",
        "tools.mcp.lab.environment": "GIVEN_KEY",
        "tools.mcp.far.url": far,
        "tools.mcp.gone.argv": "no-such-program",
    }
    loaded = load(home, f"sqlite:///{home}/ledger.db", **servers)
    with open_ledger(loaded) as ledger:
        yield open_runtime(loaded, ledger)


@pytest.fixture
def bench(place: Runtime, tmp_path: Path) -> Bench:
    return Bench(place, tmp_path)


def mcp_tool(tool: str | None = None, server: str = "lab", folder: Path | None = None, **body: Any) -> Tool:
    network = body.pop("network", False)
    given = {"server_name": server, **({"tool": tool} if tool else {}), **body}
    return read_tool({"type": "mcp", "network": network, "mcp": given}, folder=folder, id="lab")


@pytest.mark.soak
def test_a_program_of_the_settings_is_started_with_the_variables_that_it_is_given(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN_KEY", "x")
    monkeypatch.setenv("OTHER_KEY", "x")
    called = bench.call(mcp_tool("environment"))
    assert "GIVEN_KEY" in called.value["result"].split()
    assert "OTHER_KEY" not in called.value["result"]
    assert called.use.wall_ms > 0


def test_the_tools_of_a_server_are_tools(bench: Bench) -> None:
    listed = {each.id: each for each in asyncio.run(list_server_tools("far", bench.occasion()))}
    assert {"mcp_far_add", "mcp_far_fail"} <= listed.keys()
    add = listed["mcp_far_add"]
    assert add.description == "Add two numbers."
    assert "'two'" in str(bench.fails(add, {"a": 1, "b": "two"}))
    assert bench.call(add, {"a": 1, "b": 2}).value == {"result": 3}


def test_a_whole_server_is_told_which_tool_is_meant(bench: Bench) -> None:
    whole = mcp_tool(server="far")
    assert bench.call(whole, {"tool": "add", "arguments": {"a": 1, "b": 1}}).value == {"result": 2}
    assert bench.fails(whole, {"a": 1}).final


@pytest.mark.soak
def test_what_a_tool_raises_is_a_failure(bench: Bench) -> None:
    failed = bench.fails(mcp_tool("fail", server="far"))
    assert "far: fail failed" in str(failed)
    assert not failed.final


def test_a_tool_that_the_server_does_not_have_is_a_failure(bench: Bench) -> None:
    assert "nothing_like_it" in str(bench.fails(mcp_tool("nothing_like_it", server="far")))


def test_a_definition_may_name_an_address(bench: Bench, far: str) -> None:
    tool = mcp_tool("add", server="own", url=far, network=True)
    assert bench.call(tool, {"a": 1, "b": 2}).value == {"result": 3}
    offline = bench.fails(mcp_tool("add", server="own", url=far), {"a": 1, "b": 2})
    assert "`network: true`" in (offline.hint or "")


def test_an_address_where_nobody_speaks_mcp_is_a_failure(bench: Bench) -> None:
    tool = mcp_tool("add", server="own", url="http://127.0.0.1:9/mcp", network=True)
    assert "the MCP server own" in str(bench.fails(tool, {"a": 1, "b": 2}))


@pytest.mark.soak
def test_a_server_that_dies_may_be_tried_again(bench: Bench) -> None:
    failed = bench.fails(mcp_tool("die"))
    assert "the MCP server lab" in str(failed)
    assert not failed.final


@pytest.mark.soak
def test_a_server_that_does_not_answer_is_given_up(bench: Bench) -> None:
    tool = mcp_tool("x", server="own", command="sleep", args=["60"])
    failed = bench.fails(tool, seconds=1.0)
    assert failed.use.exit_code == 124
    assert "within 1 s" in str(failed)


def test_a_server_that_nobody_describes_is_named(bench: Bench) -> None:
    failed = bench.fails(mcp_tool("add", server="other"))
    assert failed.final
    assert "far, gone, lab" in str(failed)
    assert "[tools.mcp.other]" in (failed.hint or "")


@pytest.mark.parametrize("body", [{"server": "gone"}, {"server": "own", "command": "no-such-program"}])
def test_a_server_that_is_not_there_is_a_failure(bench: Bench, body: dict[str, Any]) -> None:
    assert "no-such" in str(bench.fails(mcp_tool("add", **body)))


def test_a_server_that_is_switched_off_is_not_started(bench: Bench) -> None:
    assert bench.fails(mcp_tool("add", enabled=False)).final


@pytest.mark.soak
def test_a_definition_cannot_ask_for_any_variable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "x")
    tool = mcp_tool("add", server="own", command="python", env={"KEY": "${OTHER_KEY}"})
    failed = bench.fails(tool, {"a": 1, "b": 1})
    assert "OTHER_KEY" in str(failed)
    assert "tools.variables" in (failed.hint or "")


@pytest.mark.soak
def test_a_server_of_a_definition_runs_in_the_folder_of_the_tool(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "definition"
    folder.mkdir()
    shutil.copy(LAB, folder / "lab.py")
    tool = mcp_tool(
        "add", server="own", folder=folder, command="python", args=["{tool_dir}/lab.py"], env={"A": "b"}
    )
    assert bench.call(tool, {"a": 20, "b": 22}).value == {"result": 42}


@pytest.mark.soak
def test_nothing_that_a_server_started_is_left(bench: Bench, tmp_path: Path) -> None:
    # It writes below /tmp, which the sandbox has for itself: only its processes can be looked for.
    bench.call(mcp_tool("leave_behind"), {"directory": "/tmp"})
    await_gone(b"SIG_IGN")


@pytest.mark.soak
def test_a_server_is_kept_for_the_next_call_of_a_run_and_ended_with_it(bench: Bench) -> None:
    async def work() -> list[Any]:
        async with aclosing(KeptServers()) as servers:
            occasion = bench.occasion(servers=servers)

            async def ask(tool: str, **values: Any) -> Any:
                try:
                    return (await call_tool(mcp_tool(tool), values, occasion)).value
                except ToolCallFailed as failed:
                    return failed.final

            told = [await ask("count"), await ask("fail"), await ask("count"), await ask("die")]
            told += [await ask("count"), *await asyncio.gather(ask("count"), ask("count"))]
            await ask("leave_behind", directory="/tmp")
            return told

    # What fails leaves the server as it is; one that died is started again, and no two calls share one.
    assert asyncio.run(work()) == [
        {"result": 1},
        False,
        {"result": 2},
        False,
        *({"result": n} for n in (1, 2, 1)),
    ]
    await_gone(b"SIG_IGN")
    await_gone(str(LAB).encode(), allowed=1)


@pytest.mark.soak
def test_a_kept_server_that_does_not_answer_is_ended_in_time(bench: Bench) -> None:
    async def work() -> float:
        async with aclosing(KeptServers()) as servers:
            tool = mcp_tool("x", server="own", command="sleep", args=["61"])
            began = time.monotonic()
            with pytest.raises(ToolCallFailed, match=r"within 0\.5 s"):
                await call_tool(tool, {}, bench.occasion(servers=servers, seconds=0.5))
            return time.monotonic() - began

    assert asyncio.run(work()) < 5
    await_gone(b"sleep\x0061")


def test_what_a_server_complains_of_before_it_dies_is_told(bench: Bench) -> None:
    async def work(servers: KeptServers | None) -> None:
        code = "import sys; sys.exit('the lab is closed')"
        tool = mcp_tool("x", server="own", command="python", args=["-c", code])
        with pytest.raises(ToolCallFailed, match="it said: the lab is closed"):
            await call_tool(tool, {}, bench.occasion(servers=servers))

    for servers in (None, KeptServers()):
        asyncio.run(work(servers))


def test_patterns_of_a_server_are_not_matched_here(bench: Bench) -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string", "pattern": "(a+)+$"}}}
    assert without_patterns(schema) == {"type": "object", "properties": {"pattern": {"type": "string"}}}


def await_gone(part: bytes, *, allowed: int = 0) -> None:
    """Until no more than so many processes have it in their command."""
    deadline = time.monotonic() + 20
    while sum(part in each for each in _commands()) > allowed:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _commands() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return found
