"""A tool call through an agent's stable address, next to the same call straight to its server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import time
from typing import NamedTuple

from mcp import Client, MCPError

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, cpu_seconds, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Child, Stage, die_with_parent
from ratchet.agents.host import hosting
from ratchet.config import load_settings
from ratchet.runtime import open_ledger, open_runtime
from tests.agents.host.homes import NAME, Home
from tests.agents.specimens import write_agent

_GOAL = 1.3
_AGENT = "echo"
_RUNNER = """
from ratchet.agentkit import Runner

runner = Runner("echo")


@runner.tool
async def echo(text: str) -> str:
    \"\"\"Say it again.\"\"\"
    return text


runner.run()
"""
_TOOL, _ARGUMENTS = "echo", {"text": "again"}
_MODES = {"auto": "protocol of 2026-07-28", "legacy": "older protocol, a session"}
_WARM = 20
_START_SECONDS = 60.0


class Taken(NamedTuple):
    """Milliseconds of calls that were made in pairs."""

    direct: list[float]
    through: list[float]


class Swaps(NamedTuple):
    """Seconds from the promotion of a version until its address leads there, and milliseconds of calls meanwhile."""

    seconds: list[float]
    calls: list[float]
    failed: int

    def __str__(self) -> str:
        took = Spread.of(self.seconds).show(1)
        return (
            f"{took} s until the new one answers, most of which is its start; {len(self.calls)} calls meanwhile,"
            f" {self.failed} failed, p50 {percentile(self.calls, 0.5):.1f} ms, longest {max(self.calls):.0f} ms"
        )


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "agents",
        f"a tool call through the stable address, {scale.jobs} pairs of calls by one client",
        [
            "ms",
            "direct p50",
            "through p50",
            "ratio",
            "direct p99",
            "through p99",
            "ratio",
            "gateway CPU/call",
        ],
    )
    port = _start_agent(stage)
    gateway = stage.start([sys.executable, "-m", "benchmarks.measures.agents", str(port)])
    through = f"{gateway.ask('url')['url']}/agents/{_AGENT}/runner/mcp"
    for mode, shown in _MODES.items():
        used = cpu_seconds(gateway.pid)
        taken = asyncio.run(_call(mode, f"http://127.0.0.1:{port}/mcp", through, scale.jobs))
        used = (cpu_seconds(gateway.pid) - used) * 1000 / (scale.jobs + _WARM)
        middle, late = _both(taken, 0.5), _both(taken, 0.99)
        result.rows.append(
            [shown, *_shown(*middle), *_shown(*late), f"{used:.2f}"],
        )
        slower = middle[1] / middle[0]
        result.goals.append(
            Goal(f"{shown}: at most {_GOAL:g}× the direct call", f"{slower:.2f}×", slower <= _GOAL)
        )
        result.numbers[mode] = taken._asdict()
    swaps = _measure_swaps(stage, scale.repeats)
    result.notes.append(f"{scale.repeats} swaps of versions while a client calls: {swaps}")
    result.goals.append(Goal("a swap drops no call", f"{swaps.failed} failed", swaps.failed == 0))
    result.numbers["swaps"] = swaps._asdict()
    return result


def _measure_swaps(stage: Stage, count: int) -> Swaps:
    """Move the address of a hosted agent from version to version, and call it all the while."""
    flags: dict[str, object] = {"home": str(stage.new_directory("home")), "agents.port": 0}
    loaded = load_settings(flags, env={})
    with open_ledger(loaded) as ledger, contextlib.closing(open_runtime(loaded, ledger)) as runtime:
        home = Home(runtime, loaded)
        commits = [home.make_agent(), *(home.make_version("next") for _ in range(count))]
        for number, commit in enumerate(commits):
            write_agent(home.directory(commit), greeting=str(number))
        return asyncio.run(_swap(home, commits[1:]))


async def _swap(home: Home, commits: list[str]) -> Swaps:
    swaps, over = Swaps([], [], 0), asyncio.Event()
    async with hosting(home.runtime, home.loaded) as host:
        url = f"{host.url}/agents/{NAME}/runner/mcp"
        async with Client(url) as client:
            await client.call_tool("greet", {"name": "you"})
            calling = asyncio.create_task(_keep_calling(client, swaps, over))
            for commit in commits:
                began = time.perf_counter()
                home.move(commit)
                while host.status()["agents"][0]["current"] != commit:  # noqa: ASYNC110 - a host tells nobody
                    await asyncio.sleep(0.002)
                swaps.seconds.append(time.perf_counter() - began)
            over.set()
            failed = await calling
    return swaps._replace(failed=failed)


async def _keep_calling(client: Client, swaps: Swaps, over: asyncio.Event) -> int:
    """Call until it is over; how many calls failed."""
    failed = 0
    while not over.is_set():
        began = time.perf_counter()
        try:
            answered = await client.call_tool("greet", {"name": "you"})
            failed += answered.is_error
        except MCPError:
            failed += 1
        swaps.calls.append((time.perf_counter() - began) * 1000)
    return failed


def _start_agent(stage: Stage) -> int:
    """The port of an agent's Runner, once it answers."""
    directory = stage.new_directory("agent")
    (directory / "runner.py").write_text(_RUNNER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    # In its directory, where an agent keeps its logs.
    started = stage.start(["env", "-C", str(directory), sys.executable, "runner.py", str(port)], quiet=True)
    _wait_for(port, started)
    return port


def _wait_for(port: int, started: Child) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        if not started.alive or time.monotonic() > deadline:
            raise RuntimeError("the agent of the benchmark does not answer")
        time.sleep(0.05)


async def _call(mode: str, direct: str, through: str, count: int) -> Taken:
    """Calls in turn, so that whatever else the machine does hits both alike."""
    taken = Taken([], [])
    async with Client(direct, mode=mode) as straight, Client(through, mode=mode) as led:
        sides = ((straight, taken.direct), (led, taken.through))
        for number in range(_WARM + count):
            for client, times in sides if number % 2 else reversed(sides):
                began = time.perf_counter()
                answered = await client.call_tool(_TOOL, _ARGUMENTS)
                spent = (time.perf_counter() - began) * 1000
                if answered.is_error:
                    raise RuntimeError(f"a call of the benchmark failed: {answered.content}")
                if number >= _WARM:
                    times.append(spent)
    return taken


def _both(taken: Taken, share: float) -> tuple[float, float]:
    return percentile(taken.direct, share), percentile(taken.through, share)


def _shown(direct: float, through: float) -> list[str]:
    return [f"{direct:.2f}", f"{through:.2f}", ratio(through, direct)]


def main() -> None:
    """A process that is a gateway to one server and nothing else."""
    die_with_parent()
    asyncio.run(_serve(int(sys.argv[1])))


async def _serve(port: int) -> None:
    from ratchet.agents.gateway import Gateway

    gateway = Gateway(_OneServer(port), architect_port=lambda: None)
    url = await gateway.listen("127.0.0.1", 0)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps({"url": url}), flush=True)
    await gateway.close(0)


class _OneServer:
    """A directory in which every address leads to one server."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def enter(self, route: object, session: str | None) -> _OneServer:
        return self

    def leave(self) -> None:
        pass

    def session_opened(self, session: str) -> None:
        pass

    def session_closed(self, session: str) -> None:
        pass


if __name__ == "__main__":
    main()
