"""`ratchet agent create` and `feedback` in the foreground: a real program as the engine, real checks, real servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.agents.specimens import files
from tests.cli.conftest import Ratchet

# It reads its prompt, and does one of a few things that a word in it asks for.
WRITER = """
import json, pathlib, sys
prompt = sys.stdin.read()
answer = {{"summary": "I did what was asked for.", "refused": None}}
if pathlib.Path("runner.py").exists():
    answer = {{**answer, "decision": "nothing", "bump": "minor"}}
files = {{}}
if "SHOUT" in prompt:
    files, answer["decision"] = json.loads({second!r}), "code"
elif "LESSON" in prompt:
    state = json.loads(pathlib.Path("state.json").read_text())
    files = {{"state.json": json.dumps({{**state, "lessons": ["be brief"]}})}}
    answer["decision"] = "state"
elif "decision" not in answer:
    files = json.loads({first!r})
    if "BROKEN" in prompt:
        files["tests.py"] = "def test_it():\\n    assert False, 'it greets nobody'\\n"
for name, text in files.items():
    pathlib.Path(name).write_text(text)
print(json.dumps(answer))
"""


@pytest.fixture
def writer(home: Path, ratchet: Ratchet) -> None:
    """An engine of that name, described in the settings of the home."""
    assert ratchet("init").code == 0
    program = home / "writer"
    second = files(greeting="HELLO", tools=("greet", "count", "shout"))
    del second["state.json"]
    text = WRITER.format(first=json.dumps(files()), second=json.dumps(second))
    program.write_text(f"#!{sys.executable} -IS\n{text}")
    program.chmod(0o755)
    with (home / "ratchet.toml").open("a") as settings:
        settings.write(f'\n[engines.command.writer]\nargv = ["{program}"]\n')


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_advice_after_an_engine_failed_is_about_the_engine(
    ratchet: Ratchet, writer: None, home: Path
) -> None:
    (home / "writer").write_text("#!/bin/sh\necho 'HTTP 500' >&2\nexit 1\n")
    with (home / "ratchet.toml").open("a") as settings:
        settings.write("[engines]\ntries = 1\n")
    failed = ratchet("agent", "create", "greeter", "Greet people.", "--engine", "writer")
    assert failed.code == 1
    assert "Say more exactly" not in failed.err
    assert "`ratchet engine check` looks at it" in failed.err


@pytest.mark.soak
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_agent_is_made_told_and_changed_in_the_foreground(ratchet: Ratchet, writer: None) -> None:
    broken = ratchet("agent", "create", "greeter", "BROKEN", "--engine", "writer")
    assert broken.code == 1
    assert broken.out.splitlines()[0] == "greeter: run 1 is failed"
    assert "it greets nobody" in broken.out
    assert "quarantine/" in broken.err
    assert "create greeter again" in broken.err
    assert ratchet("agent", "show", "greeter", "--json").json["status"] == "failed"

    made = ratchet("agent", "create", "greeter", "Greet people.", "--engine", "writer")
    assert made.code == 0, made.err
    assert made.out.splitlines()[0].startswith("greeter: version 0.0.0 is ready (")
    assert made.out.splitlines()[2:] == [
        "tools   greet, count",
        "runner  http://127.0.0.1:8125/agents/greeter/runner/mcp",
        "tuner   http://127.0.0.1:8125/agents/greeter/tuner/mcp",
    ]
    assert {
        "attempt.started",
        "its tests run, its servers start and are called",
        "agent.version greeter 0.0.0",
    } <= set(made.err.splitlines())

    nothing = ratchet("agent", "feedback", "greeter", "You are fine as you are.")
    assert (nothing.code, nothing.out.splitlines()[0]) == (0, "greeter: nothing to change")

    lesson = ratchet("agent", "feedback", "greeter", "LESSON")
    assert lesson.out.splitlines()[0] == "greeter: its state has changed, its code has not"
    assert ratchet("agent", "state", "greeter").json["lessons"] == ["be brief"]

    louder = ratchet("agent", "feedback", "greeter", "SHOUT", "--severity", "high", "--json")
    assert louder.code == 0, louder.err
    told = louder.json
    assert (told["from_version"], told["result"]["decision"], told["result"]["version"]) == (
        "0.0.0",
        "code",
        "0.1.0",
    )
    assert told["agent"]["version"] == "0.1.0"
    assert louder.err == ""

    variant = ratchet("agent", "feedback", "greeter", "SHOUT", "--version", "0.0.0")
    assert "; it is kept beside the current version" in variant.out.splitlines()[0]
    assert "code 0.0.0 → 0.1.0 (" in variant.out

    # Nobody serves agents here, so it is started for this call; what its Tuner sends waits for a worker.
    sent = ratchet("agent", "call", "greeter", "feedback", "--tuner", "text=still too quiet", "rating=1")
    assert (sent.code, sent.out) == (0, "sent as 1\n"), sent.err
    [remark] = ratchet("agent", "remarks", "greeter", "--json").json
    assert (remark["message"], remark["severity"], remark["run_id"]) == ("still too quiet", "high", None)


@pytest.mark.soak
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_without_its_engine_no_agent_is_begun_and_the_next_step_is_told(ratchet: Ratchet, home: Path) -> None:
    assert ratchet("init").code == 0
    with (home / "ratchet.toml").open("a") as settings:
        settings.write('\n[engines.command.gone]\nargv = ["there-is-no-such-program"]\n')
    ended = ratchet("agent", "create", "greeter", "Greet people.", "--engine", "gone")
    assert ended.code == 3
    assert "there-is-no-such-program is not on the PATH" in ended.err
    assert "engines.command.gone.argv" in ended.err
    assert ratchet("agent", "list", "--json").json == []
    assert not (home / "agents" / "greeter").exists()
