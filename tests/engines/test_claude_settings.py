"""Every setting of the `claude` engine changes what it says. (Those about failures are in test_claude_failures.)"""

from __future__ import annotations

import asyncio
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from ratchet.engines import Request
from ratchet.engines.registry import open_engine
from ratchet.kernel import ConfigError
from ratchet.modelserver import ModelServer, say
from tests.engines.claude_subject import ClaudeSubject
from tests.engines.conftest import Place
from tests.engines.contract import KEY, propose


@pytest.fixture
def subject(place: Place, model_server: ModelServer) -> ClaudeSubject:
    return ClaudeSubject(place, model_server)


@pytest.mark.soak
def test_the_model_is_that_of_the_request_then_of_the_name_then_of_the_settings(
    subject: ClaudeSubject, place: Place, workspace: Path
) -> None:
    engine = subject.plays([say("x")] * 3, model="claude-a")
    surroundings = place.surroundings((place.home / "ratchet.toml").read_text(), {"ANTHROPIC_API_KEY": KEY})
    named = open_engine("claude:claude-b", surroundings)
    request = Request("Do it.", workspace=workspace)
    told = [propose(engine, request).model, propose(named, request).model]
    told.append(propose(named, Request("Do it.", workspace=workspace, model="claude-c")).model)
    assert told == ["claude-a", "claude-b", "claude-c"]
    assert [asked.body["model"] for asked in subject.script.requests] == told


@pytest.mark.soak
def test_the_effort_reaches_the_endpoint(subject: ClaudeSubject, workspace: Path) -> None:
    propose(subject.plays([say("x")], effort="low"), Request("Do it.", workspace=workspace))
    assert subject.script.requests[0].body["output_config"]["effort"] == "low"


@pytest.mark.soak
def test_the_key_is_taken_from_the_variable_that_is_named(subject: ClaudeSubject, workspace: Path) -> None:
    engine = subject.plays([say("x")], key_variable="MY_KEY", around={"MY_KEY": "$(id) 'mine' `x` \\n"})
    propose(engine, Request("Do it.", workspace=workspace))
    assert subject.script.requests[0].headers["x-api-key"] == "$(id) 'mine' `x` \\n"


@pytest.mark.soak
def test_an_oauth_token_is_sent_as_one(subject: ClaudeSubject, workspace: Path) -> None:
    propose(subject.plays([say("x")], key_kind="oauth_token"), Request("Do it.", workspace=workspace))
    headers = subject.script.requests[0].headers
    assert (headers.get("authorization"), headers.get("x-api-key")) == (f"Bearer {KEY}", None)


@pytest.mark.soak
def test_further_variables_are_passed_on_when_they_are_named(subject: ClaudeSubject, workspace: Path) -> None:
    subject.runs("env > seen.txt")
    engine = subject.open(environment=["WANTED"], around={"WANTED": "yes", "UNWANTED": "no"})
    propose(engine, Request("Do it.", workspace=workspace))
    seen = (workspace / "seen.txt").read_text()
    assert ("WANTED=yes" in seen, "UNWANTED" in seen) == (True, False)


@pytest.mark.parametrize(
    "wrong", [{"environment": ["ANTHROPIC_API_KEY"]}, {"tools": ["Bash(git *)"]}, {"retries": -1}]
)
def test_settings_that_cannot_be_meant_are_refused(subject: ClaudeSubject, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        subject.open(**wrong)


def bundled() -> Path:
    spec = find_spec("claude_agent_sdk")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "_bundled", "claude")


@pytest.mark.soak
def test_a_program_that_lies_beside_keys_can_be_used(
    subject: ClaudeSubject, workspace: Path, tmp_path: Path
) -> None:
    program = tmp_path / "user" / ".claude" / "local" / "claude"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {bundled()} "$@"\n')
    program.chmod(0o755)
    around = {"HOME": str(tmp_path / "user")}
    engine = subject.plays([say("x")], path="~/.claude/local/claude", around=around)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", around["HOME"])
        assert propose(engine, Request("Do it.", workspace=workspace)).text == "x"


@pytest.mark.soak
def test_another_program_can_be_named(subject: ClaudeSubject, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "other").symlink_to(bundled())
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    engine = subject.plays([say("x")], path="other", around={"PATH": path})
    assert propose(engine, Request("Do it.", workspace=workspace)).text == "x"


def test_a_check_costs_nothing_and_says_what_is_missing(subject: ClaudeSubject) -> None:
    ready = asyncio.run(subject.plays([say("x")]).check())
    assert (ready.ready, subject.script.left) == (True, 1)
    assert "claude-agent-sdk" in ready.detail
    unready = asyncio.run(subject.open(base_url=None, key_variable="NOT_SET").check())
    assert (unready.ready, "NOT_SET" in str(unready.fix)) == (False, True)


@pytest.mark.soak
def test_a_session_is_forgotten_after_its_days(subject: ClaudeSubject, place: Place, workspace: Path) -> None:
    engine = subject.plays([say("x")] * 2, resume_days=3)
    first = propose(engine, Request("Do it.", workspace=workspace))
    kept = place.home / "sessions" / "claude"
    [today] = kept.iterdir()
    shutil.copytree(today, kept / "2020-01-01")
    second = propose(engine, Request("Do it.", workspace=workspace))
    assert [path.name for path in kept.iterdir()] == [today.name]
    assert {path.name for path in today.iterdir()} == {f"{s.resume}.jsonl.gz" for s in (first, second)}
