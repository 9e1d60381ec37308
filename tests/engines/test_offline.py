"""The part of the contract that engines without an endpoint fulfil: search, replay, and the fixed one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from ratchet.config import load_settings
from ratchet.engines import Engine, McpServer, Request, Session, SessionEvent
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.replay import Recording
from ratchet.kernel import Limits, Misuse
from tests.engines.fixed import FixedEngine
from tests.engines.search_subject import program

Open = Callable[[], Engine]


def propose(engine: Engine, request: Request) -> Session:
    return asyncio.run(engine.propose(request))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    program(tmp_path / "workspace")
    return tmp_path / "workspace"


@pytest.fixture(params=["fixed", "search", "replay"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, workspace: Path) -> Engine:
    around = EngineContext(load_settings(env={}, cwd=tmp_path).settings, tmp_path, {})
    fixed = FixedEngine({"model.py": "RATE = 2\n"})
    match request.param:
        case "fixed":
            return fixed
        case "search":
            return open_engine("search", around)
    cassette = tmp_path / "one.jsonl"
    before = (workspace / "model.py").read_bytes()
    propose(Recording(fixed, cassette), Request("Do it.", workspace))
    (workspace / "model.py").write_bytes(before)
    return open_engine(f"replay:{cassette}", around)


def test_the_engine_of_the_settings_is_opened_when_none_is_named(tmp_path: Path) -> None:
    settings = load_settings({"engines.default": "search"}, env={}, cwd=tmp_path).settings
    assert open_engine(None, EngineContext(settings, tmp_path, {})).name == "search"


@pytest.mark.parametrize("limits", [Limits(tokens=10), Limits(cost_usd=1.0)])
def test_an_engine_that_does_not_tell_what_it_uses_takes_no_budget(
    tmp_path: Path, workspace: Path, limits: Limits
) -> None:
    flags = {"engines.command.mine.argv": "/bin/cat"}
    around = EngineContext(load_settings(flags, env={}, cwd=tmp_path).settings, tmp_path, {})
    with pytest.raises(Misuse, match="does not report what it uses"):
        propose(open_engine("mine", around), Request("Do it.", workspace, limits=limits))


def test_it_is_ready_and_changes_what_it_says_it_can_change(engine: Engine, workspace: Path) -> None:
    before = (workspace / "model.py").read_bytes()
    assert asyncio.run(engine.check()).ready
    assert engine.capabilities.edits_files
    propose(engine, Request("Do it.", workspace))
    assert (workspace / "model.py").read_bytes() != before


def test_only_a_recording_is_simulated(engine: Engine, workspace: Path) -> None:
    session = propose(engine, Request("Do it.", workspace))
    assert session.simulated is engine.name.startswith("replay")


def test_the_transcript_is_what_was_heard_as_lines_of_json(engine: Engine, workspace: Path) -> None:
    heard: list[SessionEvent] = []
    session = propose(engine, Request("Do it.", workspace, listen=heard.append))
    lines = [json.loads(line) for line in session.transcript.splitlines()]
    assert heard
    assert [(each["kind"], each["text"]) for each in lines] == [(each.kind, each.text) for each in heard]


def test_it_costs_nothing(engine: Engine, workspace: Path) -> None:
    usage = asdict(propose(engine, Request("Do it.", workspace)).usage)
    assert {name: value for name, value in usage.items() if name != "wall_ms" and value} == {}


def test_without_a_workspace_it_is_misuse(engine: Engine) -> None:
    with pytest.raises(Misuse):
        propose(engine, Request("Do it."))


def test_tools_that_it_would_never_use_are_refused(engine: Engine, workspace: Path) -> None:
    if not engine.capabilities.mcp_tools:
        with pytest.raises(Misuse):
            propose(engine, Request("Do it.", workspace, mcp_servers=(McpServer("lab", argv=("true",)),)))
