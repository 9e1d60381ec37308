"""A whole life of an agent without a model: recorded once, then lived again from the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.change import change_agent
from ratchet.config import load_settings
from ratchet.engines import Engine
from ratchet.engines.registry import EngineContext
from ratchet.engines.replay import Recording
from ratchet.runtime import JobContext, Kinds, Runtime, Worker, open_ledger, open_runtime
from tests.agents.authors import Author
from tests.agents.test_changing import current, made, place, told

LIFE = ("remember politeness", "say ahoy", "break the tests")


def record(home: Path, cassette: Path) -> None:
    """Live it once, with every session kept."""

    async def change(job: JobContext) -> Any:
        def opened(_name: str | None, _surroundings: EngineContext) -> Engine:
            return Recording(Author(home), cassette)

        return await change_agent(job, opened)

    settings = {"home": str(home), "database_url": "sqlite:///ledger.db", "agents.tries": "1"}
    loaded = load_settings(settings, env={})
    kinds = Kinds()
    kinds.add("agents.change", change)
    with open_ledger(loaded) as ledger:
        runtime = open_runtime(loaded, ledger, kinds)
        worker = Worker(runtime)
        worker.start()
        try:
            made(runtime)
            greet(runtime)
            for message in LIFE:
                told(runtime, message)
                if message == "say ahoy":
                    greet(runtime)
        finally:
            worker.stop(drain_seconds=0)


def greet(runtime: Runtime) -> None:
    """Leave the state as a call from the terminal will leave it."""
    with StateStore(place(runtime).version(current(runtime))).edit() as state:
        state["greeted"] += 1


@pytest.mark.soak
def test_a_recorded_agent_is_made_called_taught_changed_refused_and_taken_back(tmp_path: Path) -> None:
    cassette = tmp_path / "life.jsonl"
    record(tmp_path / "recorded", cassette)
    engine = ("--engine", f"replay:{cassette}", "--simulated")

    created = ratchet(tmp_path, "create", "greeter", "create hello", *engine)
    first = created["result"]["commit"]
    assert (created["result"]["version"], created["simulated"]) == ("0.0.0", True)

    called = ratchet(tmp_path, "call", "greeter", "greet", "name=Ada")
    assert "hello, Ada" in json.dumps(called)

    taught = ratchet(tmp_path, "feedback", "greeter", LIFE[0], *engine)
    assert taught["result"]["decision"] == "state"
    assert ratchet(tmp_path, "state", "greeter") == {"greeted": 1, "lessons": ["politeness"]}

    changed = ratchet(tmp_path, "feedback", "greeter", LIFE[1], "--about", "greet", *engine)
    assert (changed["result"]["decision"], changed["result"]["version"]) == ("code", "0.0.1")
    assert "ahoy, Ada" in json.dumps(ratchet(tmp_path, "call", "greeter", "greet", "name=Ada"))

    refused = ratchet(tmp_path, "feedback", "greeter", LIFE[2], *engine, code=1)
    assert refused["status"] == "failed"
    assert "test_it_greets_by_name" in refused["reason"]

    back = ratchet(tmp_path, "rollback", "greeter")
    assert back["current"]["commit"] == first
    assert "hello, Ada" in json.dumps(ratchet(tmp_path, "call", "greeter", "greet", "name=Ada"))

    # All of it can be seen afterwards: in git, in the list of versions, and in the event log.
    repository = tmp_path / "home" / "agents" / "greeter" / "repo.git"
    log = subprocess.run(
        ["git", "-C", str(repository), "log", "--format=%s", "main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert log.stdout.splitlines() == ["say ahoy", "a greeter that says hello"]
    versions = ratchet(tmp_path, "versions", "greeter")
    assert [each["version"] for each in versions] == ["0.0.1", "0.0.0"]
    assert [each["is_current"] for each in versions] == [False, True]
    types = [event["type"] for event in events(tmp_path)]
    for kind in ("created", "ready", "feedback", "state", "promoted", "rolled_back"):
        assert f"agent.{kind}" in types, kind


def ratchet(place: Path, *words: str, code: int = 0) -> Any:
    """`ratchet agent …` in a process of its own."""
    return json.loads(run(place, "agent", *words, "--json", code=code))


def events(place: Path) -> list[dict[str, Any]]:
    found = run(place, "events", "--type", "agent.*", "--limit", "200", "--json")
    return [json.loads(line) for line in found.splitlines()]


def run(place: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ratchet.cli", "--home", str(place / "home"), *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(place), "RATCHET_AGENTS__TRIES": "1"},
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout
