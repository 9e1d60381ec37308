"""Which program is started as Codex, and what becomes of one that is not what it should be."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import codex_cli_bin
import pytest

from ratchet.config.engine_settings import Codex
from ratchet.engines import Failure, Request
from ratchet.engines.codex.engine import find_program
from ratchet.engines.engine import Fault
from tests.engines.conftest import Place
from tests.engines.contract import fails, lines, propose

REAL = codex_cli_bin.bundled_codex_path()


def program(path: Path, script: str, *, version: str = "codex-cli 0.163.0") -> Path:
    """A program that tells a version like Codex, and does as it is told otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit\n{script}\n')
    path.chmod(0o755)
    return path


def found(settings: Codex, path: str = "/usr/bin:/bin") -> Path:
    return asyncio.run(find_program(settings, {"PATH": path})).path


def test_the_program_of_the_extra_is_used_when_none_is_named() -> None:
    assert found(Codex()) == REAL.resolve()


def test_a_named_program_is_used_instead(tmp_path: Path) -> None:
    mine = program(tmp_path / "mine", "true")
    assert found(Codex(path=str(mine))) == mine
    assert found(Codex(path="mine"), path=str(tmp_path)) == mine


def test_the_program_behind_the_wrapper_of_npm_is_used(tmp_path: Path) -> None:
    modules = tmp_path / "node_modules" / "@openai"
    native = program(
        modules / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex", ""
    )
    wrapper = modules / "codex" / "bin" / "codex.js"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text("#!/usr/bin/env node\n")
    wrapper.chmod(0o755)
    (tmp_path / "codex").symlink_to(wrapper)
    assert found(Codex(path=str(tmp_path / "codex"))) == native


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("codex-cli 0.150.3", "version 0.150.3; at least 0.163.0"),
        ("hello", "does not print the version that it should: hello"),
        ("", "does not print the version that it should"),
    ],
)
def test_a_program_of_the_wrong_version_is_missing(tmp_path: Path, version: str, complaint: str) -> None:
    old = program(tmp_path / "codex", "true", version=version)
    with pytest.raises(Fault, match=complaint) as caught:
        found(Codex(path=str(old)))
    assert caught.value.failure is Failure.MISSING
    assert "pip install" in (caught.value.hint or "")


def test_a_program_that_was_replaced_is_asked_for_its_version_again(tmp_path: Path) -> None:
    path = program(tmp_path / "codex", "true")
    found(Codex(path=str(path)))
    program(path, "true", version="codex-cli 0.1.0 and older than before")
    with pytest.raises(Fault, match=r"version 0\.1\.0"):
        found(Codex(path=str(path)))


def test_a_program_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="which is not a program") as caught:
        found(Codex(path=str(tmp_path / "nothing")))
    assert caught.value.failure is Failure.MISSING


@pytest.mark.soak
@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("exit 0", Failure.CRASHED),
        ("echo this is not JSON; exit 0", Failure.CRASHED),
        ('echo \'["type", "turn.completed"]\'; exit 0', Failure.CRASHED),
        ("kill -9 $$", Failure.CRASHED),
        ("echo 'error: bad flag' >&2; exit 2", Failure.CRASHED),
        ("echo 'unknown configuration field `plugins`' >&2; exit 1", Failure.MISSING),
        ('echo \'{"type":"turn.completed","usage":{}}\'; exit 1', Failure.CRASHED),
        ('echo \'{"type":"turn.completed","usage":7}\'', Failure.BAD_OUTPUT),
        ("trap '' TERM INT HUP; while :; do sleep 1; done", Failure.TIMEOUT),
        ("yes | head -c 70000000", Failure.BAD_OUTPUT),
        ("head -c 70000000 /dev/zero", Failure.BAD_OUTPUT),
    ],
)
def test_a_program_that_behaves_badly_is_a_typed_failure(
    place: Place, tmp_path: Path, workspace: Path, script: str, failure: Failure
) -> None:
    fake = program(tmp_path / "bin" / "codex", f'[ "$1" = sandbox ] && exit 0\n{script}')
    toml = f'[engines.codex]\npath = "{fake}"\nbase_url = "http://127.0.0.1:9/v1"'
    seconds = 3 if failure is Failure.TIMEOUT else 120
    failed = fails(place.open("codex", toml), Request("x", workspace, deadline_seconds=seconds))
    assert failed.failure is failure
    assert failed.hint


def test_what_it_complains_of_is_told_and_recorded(place: Place, tmp_path: Path, workspace: Path) -> None:
    fake = program(tmp_path / "bin" / "codex", "[ $1 = sandbox ] && exit 0; echo 'out of paper' >&2; exit 1")
    toml = f'[engines.codex]\npath = "{fake}"\nbase_url = "http://127.0.0.1:9/v1"'
    failed = fails(place.open("codex", toml), Request("x", workspace))
    assert "out of paper" in str(failed)
    assert "out of paper" in lines(failed.session)[-1]["text"]


@pytest.mark.parametrize("thread", ["not-a-thread", "../../../escaped"])
def test_a_session_with_an_odd_name_is_a_session_that_cannot_be_resumed(
    place: Place, tmp_path: Path, workspace: Path, thread: str
) -> None:
    events = [
        {"type": "thread.started", "thread_id": thread},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
        {"type": "turn.completed"},
    ]
    rollout = "$CODEX_HOME/sessions/2026/01/01"
    printed = "\n".join(f"echo '{json.dumps(each)}'" for each in events)
    script = (
        f"[ $1 = sandbox ] && exit 0\nmkdir -p {rollout}; echo '{{}}' > {rollout}/rollout-x.jsonl\n{printed}"
    )
    fake = program(tmp_path / "bin" / "codex", script)
    toml = f'[engines.codex]\npath = "{fake}"\nbase_url = "http://127.0.0.1:9/v1"'
    session = propose(place.open("codex", toml), Request("x", workspace))
    assert (session.text, session.resume) == ("done", None)
    assert "cannot be resumed" in session.transcript.decode()


def test_without_a_key_the_makers_own_endpoint_is_not_even_tried(place: Place, workspace: Path) -> None:
    engine = place.open("codex")
    failed = fails(engine, Request("x", workspace))
    assert (failed.failure, failed.worked) == (Failure.MISSING, False)
    assert "OPENAI_API_KEY" in str(failed)
    readiness = asyncio.run(engine.check())
    assert not readiness.ready
    assert "OPENAI_API_KEY" in (readiness.fix or "")
