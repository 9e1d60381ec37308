from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
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


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable_by_others(home: Path) -> list[str]:
    """The home itself and the files in it that hold data or keys, as far as other users may use them."""
    kept = [
        home,
        *(each for each in home.iterdir() if each.name.startswith(("ledger.db", "secret", "token"))),
    ]
    return [each.name for each in kept if stat.S_IMODE(each.stat().st_mode) & 0o077]


@pytest.mark.usefixtures("open_umask")
def test_other_users_can_read_nothing_of_a_new_home(ratchet: Ratchet, home: Path) -> None:
    assert ratchet("init").code == 0
    assert readable_by_others(home) == []


@pytest.mark.usefixtures("open_umask")
def test_a_home_that_other_users_could_read_is_closed_when_it_is_opened(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init"]) == 0
    home.chmod(0o755)
    with contextlib.closing(sqlite3.connect(home / "ledger.db")) as reader:
        reader.execute("select count(*) from events").fetchall()
        for name in ("secret.key", "token"):
            (home / name).write_text("x")
        for each in home.iterdir():
            each.chmod(0o644)
        assert "ledger.db-wal" in readable_by_others(home)
        assert run(["runs", "list"]) == 0
        assert readable_by_others(home) == []


def test_a_home_that_belongs_to_all_stays_as_it_is(home: Path, ratchet: Ratchet) -> None:
    home.mkdir()
    home.chmod(0o1777)
    assert ratchet("init").code == 0
    assert stat.S_IMODE(home.stat().st_mode) == 0o1777
