"""CodeMachine as an engine: its command line as it is documented, played by a small program of that name."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from ratchet.config import load_settings
from ratchet.engines import Engine, Failure, Request, SessionFailed
from ratchet.engines.registry import EngineContext, open_engine

# It takes what `codemachine start --spec FILE` takes, and ends like it does.
PROGRAM = """\
import os, pathlib, sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("CodeMachine v1.0.0"))
command, option = sys.argv[1:]
name, _, file = option.partition("=")
if (command, name) != ("start", "--spec") or os.environ.get("CODEMACHINE_PLAIN_LOGS") != "1":
    sys.exit(f"unknown arguments: {sys.argv[1:]}")
wish = pathlib.Path(file).read_text()
if "explode" in wish:
    print("Workflow failed: the plan could not be made")
    sys.exit(0 if "quietly" in wish else 1)
pathlib.Path("made.txt").write_text(wish)
print("Workflow completed successfully, with the key", "OPENAI_API_KEY" in os.environ)
"""


def engine(home: Path, path: Path) -> Engine:
    loaded = load_settings({"home": str(home)}, env={})
    environment = {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "OPENAI_API_KEY": "k", "OTHER": "x"}
    return open_engine("codemachine", EngineContext(loaded.settings, home, environment))


@pytest.fixture
def codemachine(tmp_path: Path) -> Engine:
    program = tmp_path / "bin" / "codemachine"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS\n{PROGRAM}")
    program.chmod(0o755)
    return engine(tmp_path / "home", program.parent)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


def test_it_is_given_the_prompt_as_the_specification(codemachine: Engine, workspace: Path) -> None:
    session = asyncio.run(codemachine.propose(Request("Build a shed.", workspace)))
    assert "completed successfully, with the key True" in session.text
    assert (workspace / "made.txt").read_text().strip() == "Build a shed."


@pytest.mark.parametrize("wish", ["explode", "explode quietly"])
def test_a_workflow_that_failed_is_a_failed_session(codemachine: Engine, workspace: Path, wish: str) -> None:
    with pytest.raises(SessionFailed) as caught:
        asyncio.run(codemachine.propose(Request(wish, workspace)))
    assert caught.value.failure is Failure.CRASHED


def test_without_the_program_it_is_missing_with_what_to_do(tmp_path: Path, workspace: Path) -> None:
    with pytest.raises(SessionFailed) as caught:
        asyncio.run(
            engine(tmp_path / "home", tmp_path / "nowhere").propose(Request("Build a shed.", workspace))
        )
    assert caught.value.failure is Failure.MISSING
    assert "npm install -g codemachine" in str(caught.value.hint)
