from __future__ import annotations

from pathlib import Path

import pytest

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
