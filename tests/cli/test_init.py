from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.cli import run
from tests.cli.conftest import Ratchet
from tests.cli.program import Program

pytestmark = pytest.mark.no_ledger


def test_init_makes_home_settings_and_ledger_and_says_what_comes_next(ratchet: Ratchet, home: Path) -> None:
    done = ratchet("init")
    assert done.code == 0
    assert (home / "ratchet.toml").exists()
    assert done.out.count("(made)") == 3
    assert "ratchet doctor" in done.out
    assert ratchet("runs", "list").code == 0


def test_init_again_changes_nothing(ratchet: Ratchet, home: Path) -> None:
    ratchet("init")
    (home / "ratchet.toml").write_text("# mine\n")
    again = ratchet("init", "--json")
    assert again.code == 0
    assert again.json["made"] == []
    assert (home / "ratchet.toml").read_text() == "# mine\n"


def test_init_tells_a_program_what_it_made(ratchet: Ratchet, home: Path) -> None:
    done = ratchet("--json", "init")
    assert done.json["home"] == str(home)
    assert done.json["made"] == ["home", "config", "ledger"]
    assert done.err == ""


@pytest.mark.soak
def test_init_without_anything_configured_makes_a_home_here(plain_program: Program) -> None:
    done = plain_program("init")
    assert done.code == 0, done.err
    assert (plain_program.home / "ledger.db").exists()


@pytest.mark.soak
def test_init_below_a_home_uses_that_one(plain_program: Program) -> None:
    plain_program("init")
    below = plain_program.directory / "deep" / "below"
    below.mkdir(parents=True)
    done = Program(below)("init", "--json")
    assert done.json["home"] == str(plain_program.home)
    assert done.json["made"] == []


@pytest.mark.parametrize(
    "line",
    [
        "research run nope",
        "research run ./nofolder",
        "research run circle_packing --engine codex --trials 1",
        "agent create greeter hello",
        "workflow new hello",
        "console --port 9",
    ],
)
def test_a_command_that_fails_leaves_no_home_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) != 0
    assert not (tmp_path / ".ratchet").exists()


def test_a_home_with_something_in_it_stays_and_is_hidden_from_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "research run circle_packing --engine search --trials 1 --detach"
    assert run(line.split()) == 0
    assert (tmp_path / ".ratchet" / ".gitignore").read_text() == "*\n"
    assert run(["runs", "show", "7"]) != 0
    assert (tmp_path / ".ratchet" / "ledger.db").exists()


def test_a_home_above_a_repository_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init"]) == 0
    assert "lies above" not in capsys.readouterr().err
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    assert run(["init"]) == 0
    told = capsys.readouterr().err
    assert f"{tmp_path}/.ratchet lies above this repository" in told
    assert f"ratchet init --home {tmp_path}/shop/.ratchet" in told
