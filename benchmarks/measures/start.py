"""How long the command takes to start, and what each layer costs to import."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, ratio
from benchmarks.scale import Scale
from benchmarks.stage import ROOT, Stage

_GOAL_MS = 150
_BARE = "python -c pass"
_HELP = "ratchet --help"
_LAYERS = ("kernel", "config", "ledger", "runtime")


def measure(_stage: Stage, scale: Scale) -> Result:
    commands = {_BARE: [sys.executable, "-c", "pass"]}
    command = ratchet_command()
    if command is not None:
        commands[_HELP] = [*command, "--help"]
    for layer in _LAYERS:
        commands[f"import ratchet.{layer}"] = [sys.executable, "-c", f"import ratchet.{layer}"]
    walls: dict[str, list[float]] = defaultdict(list)
    cpus: dict[str, list[float]] = defaultdict(list)
    for words in commands.values():  # compiled once
        _start(words)
    for _ in range(scale.starts):
        for name, words in commands.items():
            wall, cpu = _start(words)
            walls[name].append(wall)
            cpus[name].append(cpu)
    result = Result(
        "start",
        f"a whole process from start to end, {scale.starts} times",
        ["ms", "wall", "CPU", "over bare", "to bare"],
        numbers={"wall": dict(walls), "cpu": dict(cpus)},
    )
    bare = Spread.of(walls[_BARE]).median
    for name in commands:
        wall = Spread.of(walls[name])
        more = "–" if name == _BARE else f"{wall.median - bare:.0f}"
        result.rows.append([name, wall.show(), Spread.of(cpus[name]).show(), more, ratio(wall.median, bare)])
    if command is None:
        result.notes.append("`ratchet.cli` is not there yet")
    else:
        got = Spread.of(walls[_HELP]).median
        result.goals.append(Goal(f"{_HELP} under {_GOAL_MS} ms", f"{got:.0f} ms", got < _GOAL_MS))
    return result


def ratchet_command() -> list[str] | None:
    """The installed command, the module where it is not installed, `None` where there is neither."""
    if importlib.util.find_spec("ratchet.cli") is None:
        return None
    script = Path(sys.executable).with_name("ratchet")
    return [str(script)] if script.exists() else [sys.executable, "-m", "ratchet.cli"]


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
