"""What commands cost beside what they are made of: `--help`, the lists, a call of an agent, and setting up."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, ratio
from benchmarks.scale import Scale
from benchmarks.stage import ROOT, Stage, die_with_parent
from ratchet.agents.host import hosting
from ratchet.config import load_settings
from ratchet.runtime import open_ledger, open_runtime
from tests.agents.host.homes import NAME, Home

_BARE = "python -c pass"
_SQLALCHEMY = "import sqlalchemy"
_HELP = "ratchet --help"
_LISTS = (
    "runs list",
    "agent list",
    "workflow list",
    "tool list",
    "research tasks",
    "protocol list",
    "config show",
)
_CALL = "agent call"
_CALL_ALONE = "the call alone"
_TOOL = "say"
# What is left of `ratchet agent call` without Ratchet: finding the tool and calling it, by the same client.
_CALLING = f"""
import asyncio, sys
from mcp import Client

async def call(url):
    async with Client(url) as client:
        await client.list_tools()
    async with Client(url) as client:
        await client.call_tool({_TOOL!r}, {{}})

asyncio.run(call(sys.argv[1]))
"""
_MOST_HELP = 5.0
_MOST_LIST = 2.0
_MOST_CALL = 3.0
_MOST_SETUP_SECONDS = 30.0


def measure(stage: Stage, scale: Scale) -> Result:
    home = stage.new_directory("home") / ".ratchet"
    ratchet = [*ratchet_command(), "--home", str(home)]
    _start([*ratchet, "init"])
    host = stage.start([sys.executable, "-m", "benchmarks.measures.start", str(home)], quiet=True)
    url = f"{host.ask('url')['url']}/agents/{NAME}/runner/mcp"
    commands = {
        _BARE: [sys.executable, "-c", "pass"],
        _SQLALCHEMY: [sys.executable, "-c", "import sqlalchemy"],
        _HELP: [*ratchet_command(), "--help"],
        **{name: [*ratchet, *name.split()] for name in _LISTS},
        _CALL_ALONE: [sys.executable, "-c", _CALLING, url],
        _CALL: [*ratchet, "agent", "call", NAME, _TOOL],
    }
    walls: dict[str, list[float]] = defaultdict(list)
    cpus: dict[str, list[float]] = defaultdict(list)
    for words in commands.values():  # compiled once
        _start(words)
    # In turn, so that whatever else the machine does hits all alike.
    for _ in range(scale.starts):
        for name, words in commands.items():
            wall, cpu = _start(words)
            walls[name].append(wall)
            cpus[name].append(cpu)
    result = Result(
        "start",
        f"a whole process from start to end, {scale.starts} times in turn",
        ["ms", "wall", "CPU", "CPU to bare", "CPU to SQLAlchemy"],
        numbers={"wall": dict(walls), "cpu": dict(cpus)},
    )
    middle = {name: Spread.of(cpus[name]).median for name in commands}
    for name in commands:
        result.rows.append(
            [
                name,
                Spread.of(walls[name]).show(),
                Spread.of(cpus[name]).show(),
                ratio(middle[name], middle[_BARE]),
                ratio(middle[name], middle[_SQLALCHEMY]),
            ]
        )
    result.goals = [
        _at_most(_MOST_HELP, f"{_HELP} beside {_BARE}", middle[_HELP] / middle[_BARE]),
        *(
            _at_most(_MOST_LIST, f"{name} beside {_SQLALCHEMY}", middle[name] / middle[_SQLALCHEMY])
            for name in _LISTS
        ),
        _at_most(
            _MOST_CALL,
            f"{_CALL} without the call itself, beside {_SQLALCHEMY}",
            (middle[_CALL] - middle[_CALL_ALONE]) / middle[_SQLALCHEMY],
        ),
    ]
    _measure_setup(stage, result)
    return result


def ratchet_command() -> list[str]:
    """The installed command, or the module where it is not installed."""
    script = Path(sys.executable).with_name("ratchet")
    return [str(script)] if script.exists() else [sys.executable, "-m", "ratchet.cli"]


def _at_most(limit: float, what: str, got: float) -> Goal:
    return Goal(f"{what}: at most {limit:g}×", f"{got:.2f}×", got <= limit)


def _measure_setup(stage: Stage, result: Result) -> None:
    """`make setup` in a new clone. The first one fills the cache of packages, the second one is measured."""
    if shutil.which("make") is None or not (ROOT / ".git").exists():
        result.notes.append("setting up is not measured: it needs make, and this to be a clone")
        return
    seconds = [_set_up(stage.new_directory("setup") / "clone") for _ in range(2)][-1]
    result.numbers["setup_seconds"] = seconds
    result.goals.append(
        Goal(
            f"make setup with a warm cache within {_MOST_SETUP_SECONDS:g} s",
            f"{seconds:.1f} s",
            seconds <= _MOST_SETUP_SECONDS,
        )
    )


def _set_up(clone: Path) -> float:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    # As a person has it: bytecode goes where Python puts it.
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "MAKE"))}
    environment.pop("VIRTUAL_ENV", None)
    began = time.perf_counter()
    subprocess.run(["make", "-s", "setup"], cwd=clone, env=environment, check=True, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - began
    shutil.rmtree(clone)
    return took


def _start(words: list[str]) -> tuple[float, float]:
    """Wall and CPU milliseconds of one process."""
    began = time.perf_counter()
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{words} ended with {process.returncode}")
    return wall * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def main() -> None:
    """A process that serves the agents of a home, as `ratchet serve` does, with one agent in it."""
    die_with_parent()
    loaded = load_settings({"home": sys.argv[1], "agents.port": 0}, env={})
    with open_ledger(loaded) as ledger:
        home = Home(open_runtime(loaded, ledger), loaded)
        home.make_agent()
        asyncio.run(_serve(home))


async def _serve(home: Home) -> None:
    async with hosting(home.runtime, home.loaded) as host:
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps({"url": host.url}), flush=True)


if __name__ == "__main__":
    main()
