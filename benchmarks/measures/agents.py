"""A tool call through an agent's stable address, next to the same call straight to its server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import ClassVar, NamedTuple

from mcp import Client, MCPError

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, cpu_seconds, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Child, Stage, die_with_parent
from ratchet.agentkit import StateStore
from ratchet.agents.host import hosting
from ratchet.agents.host.host import hosting_alone
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
_STATE_BYTES = (1_000, 100_000_000)
_FLAT = 1.5
_MB = 40.0


class Taken(NamedTuple):
    """Milliseconds of calls that were made in pairs."""

    direct: list[float]
    through: list[float]


class Swaps(NamedTuple):
    """Seconds from the promotion of a version until its address leads there, and milliseconds of calls meanwhile.

    `direct` are calls of a server that was started by hand, by turns with those through the address.
    """

    seconds: list[float]
    calls: list[float]
    direct: list[float]
    failed: int

    @property
    def slower(self) -> float:
        """How much longer a call takes than one of a server that was started by hand, at the same time."""
        return percentile(self.calls, 0.5) / percentile(self.direct, 0.5)

    def __str__(self) -> str:
        took = Spread.of(self.seconds).show(1)
        return (
            f"{took} s until the new one answers, most of which is its start; {len(self.calls)} calls meanwhile,"
            f" {self.failed} failed, p50 {percentile(self.calls, 0.5):.1f} ms (direct"
            f" {percentile(self.direct, 0.5):.1f} ms), longest {max(self.calls):.0f} ms"
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
    result.goals.append(
        Goal(
            f"while versions are swapped: at most {_GOAL:g}× the direct call",
            f"{swaps.slower:.2f}×",
            swaps.slower <= _GOAL,
        )
    )
    result.numbers["swaps"] = swaps._asdict()
    _measure_idle(stage, scale, result)
    _measure_state(stage, scale.repeats * 10, result)
    return result


class Idle(NamedTuple):
    """Of agents that do nothing: megabytes of private memory of each and of a server by hand, the share of a processor
    that all take, and seconds of calls that had to start their agent."""

    count: int
    mb: float
    by_hand_mb: float
    processor: float
    cold: list[float]


def _measure_idle(stage: Stage, scale: Scale, result: Result) -> None:
    """Have many agents up that are not called."""
    count = max(2, scale.jobs // 20)
    flags: dict[str, object] = {"home": str(stage.new_directory("idle")), "agents.port": 0}
    loaded = load_settings(flags, env={})
    with open_ledger(loaded) as ledger:
        runtime = open_runtime(loaded, ledger)
        home = Home(runtime, loaded)
        for number in range(count):
            name = f"agent-{number}"
            write_agent(home.directory(home.make_agent(name=name), name), greeting="hello")
        idle = asyncio.run(_idle(home, count, _by_hand_mb(stage), scale.idle_seconds))
    result.numbers["idle"] = idle._asdict()
    result.notes.append(
        f"{idle.count} idle agents, of two servers each: {idle.mb:.1f} MB of private memory each, which is"
        f" {idle.mb / 2:.1f} MB for a server; one that is started by hand has {idle.by_hand_mb:.1f} MB."
        f" All together take {100 * idle.processor:.1f} % of a processor"
    )
    shown = Spread.of(idle.cold).show(2)
    result.notes.append(f"a call that starts its agent: {shown} s, longest {max(idle.cold):.2f} s")
    result.goals += [
        Goal(f"an idle agent has at most {_MB:g} MB of its own", f"{idle.mb:.1f} MB", idle.mb <= _MB),
        Goal("a call that starts its agent within 1 s", f"p50 {shown} s", percentile(idle.cold, 0.5) <= 1),
    ]


async def _idle(home: Home, count: int, by_hand_mb: float, seconds: float) -> Idle:
    cold = []
    async with hosting_alone(home.runtime, home.loaded) as host:
        for number in range(count):
            began = time.perf_counter()
            async with Client(f"{host.url}/agents/agent-{number}/runner/mcp") as client:
                await client.call_tool("greet", {"name": "you"})
            cold.append(time.perf_counter() - began)
        await asyncio.sleep(seconds)
        mine = _of_agents()
        before = sum(map(cpu_seconds, mine)) + time.process_time()
        await asyncio.sleep(seconds)
        used = sum(map(cpu_seconds, mine)) + time.process_time() - before
        mb = sum(map(private_mb, mine)) / count
    # The first one waits for the parent of all to load the kit.
    return Idle(count, mb, by_hand_mb, used / seconds, cold[1:])


def _of_agents() -> list[int]:
    """Every process of the agents that this one hosts, without the parent that they share."""
    parents = [
        pid for pid in below(os.getpid()) if "agentkit.relay" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    return parents[1:]


def _by_hand_mb(stage: Stage) -> float:
    port = _start_agent(stage)
    asyncio.run(_call("auto", *[f"http://127.0.0.1:{port}/mcp"] * 2, count=1))
    [found] = [pid for pid in below(os.getpid()) if str(port) in Path(f"/proc/{pid}/cmdline").read_text()]
    return private_mb(found)


def below(pid: int) -> list[int]:
    """The processes that were started by this one, and by those."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *below(child)]
    return found


def private_mb(pid: int) -> float:
    """What it shares with no other process."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024
    return 0.0


def _measure_state(stage: Stage, count: int, result: Result) -> None:
    """Count in a small state and in a large one, by turns."""
    stores = {size: _state_of(stage, size) for size in _STATE_BYTES}
    for name, count_up in (("state.increment", StateStore.increment), ("with state as s", _edit)):
        took: dict[int, list[float]] = {size: [] for size in stores}
        for _ in range(count):
            for size, store in stores.items():
                began = time.perf_counter()
                count_up(store, "count")
                took[size].append((time.perf_counter() - began) * 1000)
        small, large = (percentile(took[size], 0.5) for size in _STATE_BYTES)
        result.numbers[name] = {str(size): each for size, each in took.items()}
        result.notes.append(f"{name}: p50 {small:.2f} ms at 1 kB, {large:.2f} ms at 100 MB")
        result.goals.append(
            Goal(
                f"{name}: at most {_FLAT:g}× from 1 kB to 100 MB",
                f"{large / small:.2f}×",
                large <= _FLAT * small,
            )
        )


def _state_of(stage: Stage, size: int) -> StateStore:
    store = StateStore(stage.new_directory(f"state-{size}"))
    (store.directory / "state_schema.json").write_text('{"type": "object"}')
    store.begin({"count": 0, **{f"notes {number}": "x" * 1000 for number in range(min(1, size // 1000))}})
    for _ in range(size // 1_000_000):
        store.append("more", "x" * 1_000_000)
    return store


def _edit(store: StateStore, key: str) -> None:
    with store as state:
        state[key] += 1


def _measure_swaps(stage: Stage, count: int) -> Swaps:
    """Move the address of a hosted agent from version to version, and call it all the while."""
    flags: dict[str, object] = {"home": str(stage.new_directory("home")), "agents.port": 0}
    loaded = load_settings(flags, env={})
    by_hand = stage.new_directory("by-hand")
    write_agent(by_hand)
    direct = f"http://127.0.0.1:{_serve_by_hand(stage, by_hand)}/mcp"
    with open_ledger(loaded) as ledger:
        home = Home(open_runtime(loaded, ledger), loaded)
        commits = [home.make_agent(), *(home.make_version("next") for _ in range(count))]
        for number, commit in enumerate(commits):
            write_agent(home.directory(commit), greeting=str(number))
        return asyncio.run(_swap(home, commits[1:], direct))


async def _swap(home: Home, commits: list[str], direct: str) -> Swaps:
    swaps, over = Swaps([], [], [], 0), asyncio.Event()
    async with hosting(home.runtime, home.loaded) as host:
        url = f"{host.url}/agents/{NAME}/runner/mcp"
        async with Client(url) as client, Client(direct) as straight:
            for each in (client, straight):
                await each.call_tool("greet", {"name": "you"})
            calling = asyncio.create_task(_keep_calling(client, straight, swaps, over))
            for commit in commits:
                began = time.perf_counter()
                home.move(commit)
                while host.status()["agents"][0]["current"] != commit:  # noqa: ASYNC110 - a host tells nobody
                    await asyncio.sleep(0.002)
                swaps.seconds.append(time.perf_counter() - began)
            over.set()
            failed = await calling
    return swaps._replace(failed=failed)


async def _keep_calling(client: Client, straight: Client, swaps: Swaps, over: asyncio.Event) -> int:
    """Call until it is over, and by turns a server that was started by hand; how many calls failed."""
    failed = 0
    sides = ((client, swaps.calls), (straight, swaps.direct))
    while not over.is_set():
        for called, times in sides:
            began = time.perf_counter()
            try:
                answered = await called.call_tool("greet", {"name": "you"})
                failed += answered.is_error
            except MCPError:
                failed += 1
            times.append((time.perf_counter() - began) * 1000)
    return failed


def _start_agent(stage: Stage) -> int:
    """The port of an agent's Runner, once it answers."""
    directory = stage.new_directory("agent")
    (directory / "runner.py").write_text(_RUNNER)
    return _serve_by_hand(stage, directory)


def _serve_by_hand(stage: Stage, directory: Path) -> int:
    """The port of the Runner in a directory, once it answers."""
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

    commit = ""
    is_left = False
    lists: ClassVar[dict[str, str]] = {}

    async def enter(self, route: object, session: str | None, request: object) -> _OneServer:
        return self

    def broke_off(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def session_opened(self, session: str) -> None:
        pass

    def session_closed(self, session: str) -> None:
        pass


if __name__ == "__main__":
    main()
