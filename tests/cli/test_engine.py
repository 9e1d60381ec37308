"""`ratchet engine …`"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.modelserver import ModelServer, call, say
from tests.cli.conftest import install_plugin
from tests.cli.program import Program

NAMES = ["aider", "claude", "codemachine", "codex", "gemini", "llm", "opencode", "replay", "search"]


@pytest.fixture(scope="module")
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.env["PATH"] = "/usr/bin:/bin"
    return made


@pytest.mark.soak
def test_every_engine_is_listed_with_what_it_can_do(program: Program) -> None:
    listed = program("engine", "list", "--json").json
    assert [each["name"] for each in listed] == NAMES
    [default] = [each for each in listed if each["default"]]
    assert (default["name"], default["capabilities"]["edits_files"]) == ("codex", True)
    assert "codex (default)" in program("engine", "list").out


@pytest.mark.soak
def test_an_engine_of_ones_own_is_listed_and_replaces_a_ready_one(program: Program) -> None:
    program.env["RATCHET_ENGINES__COMMAND__MINE__ARGV"] = "/bin/cat"
    program.env["RATCHET_ENGINES__COMMAND__AIDER__ARGV"] = "/bin/cat"
    assert [each["name"] for each in program("engine", "list", "--json").json] == sorted([*NAMES, "mine"])
    assert program("engine", "check", "aider").code == 0


THEIRS = f"""
{(Path(__file__).parents[1] / "engines/fixed.py").read_text()}

def open_theirs(surroundings, option):
    return FixedEngine({{"answer.txt": option or "plain"}}, text="theirs")
"""


@pytest.mark.soak
def test_an_engine_that_somebody_else_installed_is_used_like_any_other(tmp_path: Path) -> None:
    theirs = install_plugin(tmp_path / "plugins", THEIRS, "ratchet.engines:theirs=open_theirs")
    program = Program(tmp_path, plugins=theirs)
    assert "theirs" in [each["name"] for each in program("engine", "list", "--json").json]
    done = program("engine", "record", "theirs:odd", "go", "--cassette", "one.jsonl", "--json")
    assert (done.code, done.json["text"]) == (0, "theirs")
    assert "odd" in (tmp_path / "one.jsonl").read_text()


@pytest.mark.soak
def test_an_engine_of_somebody_else_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    theirs = install_plugin(tmp_path / "plugins", "1 / 0", "ratchet.engines:theirs=open_theirs")
    program = Program(tmp_path, plugins=theirs)
    listed = program("engine", "list", "--json")
    assert [each["name"] for each in listed.json] == NAMES
    assert "theirs" in listed.err
    done = program("engine", "check", "theirs")
    assert done.code == 1
    assert "the engine 'theirs' of ratchet_test_kinds:open_theirs cannot be loaded" in done.err


@pytest.mark.soak
def test_what_is_missing_is_told_and_is_exit_code_3(program: Program) -> None:
    done = program("engine", "check", "opencode", "--json")
    assert done.code == 3
    assert done.json[0]["ready"] is False
    assert "npm install" in done.json[0]["fix"]
    assert program("engine", "check", "search").code == 0


@pytest.mark.soak
def test_one_engine_that_is_ready_is_enough_when_none_is_named(program: Program) -> None:
    done = program("engine", "check", "--json")
    assert done.code == 0
    assert [each["name"] for each in done.json if each["ready"]] == ["search"]


@pytest.mark.soak
def test_an_engine_that_does_not_exist_is_misuse_that_names_the_others(program: Program) -> None:
    done = program("engine", "check", "codecs")
    assert done.code == 2
    assert "there is no engine 'codecs'" in done.err
    assert "codex" in done.err


@pytest.mark.soak
def test_a_session_is_recorded_and_its_cassette_can_be_played(
    program: Program, model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.script("record", [call("exec_command", cmd="echo hi > f.txt"), say("written")])
    program.env["RATCHET_ENGINES__CODEX__BASE_URL"] = model_server.openai_url("record")
    program.env["RATCHET_ENGINES__CODEX__MODEL"] = "mock-model"
    done = program("engine", "record", "codex", "write f.txt", "--cassette", "one.jsonl", "--json")
    assert done.code == 0, done.err
    assert done.json["text"] == "written"
    assert done.json["usage"]["input_tokens"] > 0
    assert "f.txt" in (tmp_path / "one.jsonl").read_text()
    assert program("engine", "check", "replay:one.jsonl").code == 0
    again = program(
        "engine", "record", "replay:one.jsonl", "write f.txt", "--cassette", "two.jsonl", "--json"
    )
    assert (again.code, again.json["text"]) == (0, "written")


@pytest.mark.soak
def test_a_cassette_that_exists_is_not_overwritten(program: Program, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text("mine")
    done = program("engine", "record", "search", "x", "--cassette", "one.jsonl")
    assert done.code == 2
    assert (tmp_path / "one.jsonl").read_text() == "mine"


@pytest.mark.soak
def test_a_session_that_fails_is_told_with_its_hint(program: Program, tmp_path: Path) -> None:
    done = program("engine", "record", "opencode", "x", "--cassette", "one.jsonl", "--json")
    assert done.code == 3
    assert json.loads(done.err.splitlines()[-1])["hint"]


def test_a_login_is_that_of_the_program_that_ratchet_uses(program: Program, tmp_path: Path) -> None:
    codex = tmp_path / "codex"
    codex.write_text(
        f'#!/bin/sh\n[ "$1" = login ] || exec echo codex-cli 9.9.9\necho "$@" > {tmp_path}/said; exit 7\n'
    )
    codex.chmod(0o755)
    program.env["RATCHET_ENGINES__CODEX__PATH"] = str(codex)
    done = program("engine", "login", "codex")
    assert (done.code, (tmp_path / "said").read_text()) == (7, "login\n"), done.err
    codex.unlink()
    absent = program("engine", "login", "codex")
    assert (absent.code, "is not a program" in absent.err) == (3, True)
