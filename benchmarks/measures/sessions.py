"""A session of a real agent through Ratchet, next to the same program started by hand."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Stage, die_with_parent
from ratchet.config import load_settings
from ratchet.engines import Request
from ratchet.engines.codex.configuration import SessionFiles, write_files
from ratchet.engines.codex.engine import find_program
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.modelserver import ModelServer, call, say

_GOAL = 1.1
_PROMPT = "BEGIN: make a file."
_COMMAND = "echo x > made"
_MODEL = "scripted"
_KEY = "not a real key"
_PACKAGES = {"codex": "codex_cli_bin", "claude": "claude_agent_sdk"}

Hold = Callable[[Path, Path], Awaitable[None]]
"""Holds one session in a workspace, with a directory for whatever else it needs."""


@dataclass(frozen=True, slots=True)
class Sides:
    by_hand: Hold
    through_ratchet: Hold


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "sessions",
        f"one command and one answer of a model that answers at once, {scale.starts} sessions in turn",
        ["ms", "by hand", "through Ratchet", "more", "ratio"],
    )
    server = stage.start([sys.executable, "-m", "benchmarks.measures.sessions"])
    for name, package in _PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            result.notes.append(f"{name} is not installed, so it was not measured")
            continue
        sides = {"codex": _codex, "claude": _claude}[name](stage, server.ask("url")["url"])
        by_hand, through = asyncio.run(_in_turn(stage, sides, scale.starts))
        bare, ours = Spread.of(by_hand), Spread.of(through)
        times = ratio(ours.median, bare.median)
        result.rows.append([name, bare.show(), ours.show(), f"{ours.median - bare.median:,.0f}", times])
        met = ours.median <= _GOAL * bare.median
        result.goals.append(Goal(f"{name}: a session at most {_GOAL}× the bare program", times, met))
        result.numbers[name] = {"by hand": by_hand, "through Ratchet": through}
    result.notes.append(
        "by hand: the same program in a fresh home, whose removal is not counted, and no sandbox around it"
    )
    return result


async def _in_turn(stage: Stage, sides: Sides, times: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each session, one side after the other; the first of each only warms up."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(times + 1):
        for hold, values in zip((sides.by_hand, sides.through_ratchet), taken, strict=True):
            workspace, directory = stage.new_directory("workspace"), stage.new_directory("session")
            began = time.perf_counter()
            await hold(workspace, directory)
            values.append((time.perf_counter() - began) * 1000)
            if not (workspace / "made").exists():
                raise RuntimeError("a session did not do its work")
    return taken[0][1:], taken[1][1:]


def _surroundings(stage: Stage, engine: str, url: str) -> EngineContext:
    flags = {"home": str(stage.new_directory("home")), f"engines.{engine}.base_url": url}
    flags |= {f"engines.{engine}.model": _MODEL, f"engines.{engine}.key_variable": "KEY"}
    loaded = load_settings(flags, env={})
    return EngineContext(loaded.settings, loaded.home, {"PATH": os.environ["PATH"], "KEY": _KEY})


def _through(name: str, around: EngineContext) -> Hold:
    engine = open_engine(name, around)

    async def hold(workspace: Path, _directory: Path) -> None:
        await engine.propose(Request(_PROMPT, workspace, deadline_seconds=120))

    return hold


def _codex(stage: Stage, url: str) -> Sides:
    around = _surroundings(stage, "codex", f"{url}/s/codex/v1")
    settings = around.settings.engines.codex

    async def hold(workspace: Path, home: Path) -> None:
        environment = write_files(
            SessionFiles(home), settings, Request(_PROMPT), workspace, around.environment, _MODEL
        )
        program = await find_program(settings, around.environment)
        process = await asyncio.create_subprocess_exec(
            *(program.path, "exec", "--json", "--skip-git-repo-check", "-s", "workspace-write"),
            *("-C", workspace, _PROMPT),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await process.wait()

    return Sides(hold, _through("codex", around))


def _claude(stage: Stage, url: str) -> Sides:
    from claude_agent_sdk import ClaudeAgentOptions, query

    async def hold(workspace: Path, home: Path) -> None:
        environment = {
            "ANTHROPIC_BASE_URL": f"{url}/s/claude",
            "ANTHROPIC_API_KEY": _KEY,
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        options = ClaudeAgentOptions(
            cwd=workspace,
            model=_MODEL,
            setting_sources=[],
            allowed_tools=["Bash"],
            env=environment,
            stderr=lambda _line: None,
        )
        async for _ in query(prompt=_PROMPT, options=options):
            pass

    return Sides(hold, _through("claude", _surroundings(stage, "claude", f"{url}/s/claude")))


def main() -> None:
    """The model, in a process of its own so that neither side waits for the other's Python."""
    die_with_parent()
    with ModelServer() as server:
        for name, tool, argument in (("codex", "exec_command", "cmd"), ("claude", "Bash", "command")):
            first = replace(call(tool, **{argument: _COMMAND}), when=_PROMPT, repeat="always")
            server.script(name, [first, replace(say("done"), repeat="always")])
        for _ in sys.stdin:
            print(json.dumps({"url": server.url}), flush=True)


if __name__ == "__main__":
    main()
