"""`ratchet research import` and `export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.ledger import Ledger
from ratchet.ledger.runs import list_runs
from ratchet.workspaces.directories import remove_tree
from tests.cli.conftest import Ratchet
from tests.research.exchange.boards import CIFAR, HEAD, PG, Board, files_of, small_board
from tests.research.hill import write_hill

FILES = {"results.tsv", "tree.tsv", "best.json", "LEADERBOARD.md", "KNOWLEDGE.md"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return small_board(CIFAR).write(tmp_path / "state")


def test_a_state_directory_becomes_a_run_that_can_be_looked_at(ratchet: Ratchet, state: Path) -> None:
    done = ratchet("research", "import", str(state), "--name", "old", "--json")
    assert done.code == 0, done.err
    told = done.json
    assert (told["run"], told["name"], told["rows"]) == (1, "old", 7)
    assert (told["repaired"], told["rejected"], told["mismatches"]) == (0, 0, 0)
    assert told["best"] == {"exp_id": "004", "score": 1.06}
    status = ratchet("research", "status", "old", "--json").json
    assert (status["status"], status["trials"], status["best"]["exp_id"]) == ("completed", 6, "004")
    [first, *_] = ratchet("research", "leaderboard", "old", "--json").json
    assert first["measurements"]["accuracy"] == 0.9601
    assert ratchet("research", "report", "old").code == 0
    resumed = ratchet("research", "resume", "old")
    assert (resumed.code, "completed" in resumed.err) == (1, True)


def test_damaged_rows_are_told_of_loudly(ratchet: Ratchet, tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "state")
    results = state / "blackboard" / "results.tsv"
    results.write_text(results.read_text() + "not a row at all\n")
    done = ratchet("research", "import", str(state), "--name", "old")
    assert done.code == 0
    assert "1 rejected" in done.out
    assert "results.tsv:" in done.err
    assert "rejected" in done.err


def test_what_is_imported_is_exported_as_it_was(ratchet: Ratchet, state: Path, tmp_path: Path) -> None:
    ratchet("research", "import", str(state), "--name", "old")
    done = ratchet("research", "export", "old", str(tmp_path / "copy"))
    assert (done.code, done.out) == (0, f"7 trials of run 1 are written to {tmp_path / 'copy'}.\n")
    copy = files_of(tmp_path / "copy")
    assert copy.keys() == FILES
    assert copy["results.tsv"] == (state / "blackboard" / "results.tsv").read_bytes()
    assert json.loads(copy["best.json"])["exp_id"] == "004"


def test_a_directory_with_something_in_it_is_replaced_only_by_force(
    ratchet: Ratchet, state: Path, tmp_path: Path
) -> None:
    ratchet("research", "import", str(state), "--name", "old")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "mine.txt").write_text("mine")
    (copy / "tree.tsv").write_text("theirs")
    refused = ratchet("research", "export", "old", str(copy))
    assert (refused.code, files_of(copy)["tree.tsv"]) == (1, b"theirs")
    assert "not empty" in refused.err
    forced = ratchet("research", "export", "1", str(copy), "--force", "--json")
    assert forced.json == {"run": 1, "path": str(copy), "trials": 7}
    assert files_of(copy).keys() == FILES | {"mine.txt"}
    assert files_of(copy)["tree.tsv"] != b"theirs"


@pytest.mark.soak
def test_a_run_of_our_own_is_exported_with_the_columns_of_its_task(
    ratchet: Ratchet, ledger: Ledger, tmp_path: Path, home: Path
) -> None:
    hill = write_hill(tmp_path / "hill")
    assert ratchet("research", "run", str(hill), "--engine", "search", "--trials", "4").code == 0
    assert ratchet("research", "export", "hill", str(tmp_path / "out")).err == ""
    head, *rows = (tmp_path / "out" / "results.tsv").read_text().splitlines()
    columns = head.split("\t")
    assert columns[columns.index("status") + 1 :][:3] == ["height", "x", "y"]
    assert len(rows) == 5
    assert rows[1].split("\t")[columns.index("job_name")] == "hil-sear-0001"
    again = ratchet("research", "import", str(tmp_path / "out"), "--name", "again", "--json")
    assert (again.code, again.json["rows"]) == (0, 5)

    remove_tree(home / "research" / "tasks")
    without = ratchet("research", "export", "hill", str(tmp_path / "without"))
    assert without.code == 0
    assert "Without its task" in without.err


def test_a_direction_that_rows_do_not_tell_can_be_given(ratchet: Ratchet, tmp_path: Path) -> None:
    board = Board((*HEAD, "luck", *PG[len(HEAD) + 1 :]))
    board.baseline(0.5)
    state = board.write(tmp_path / "state")
    refused = ratchet("research", "import", str(state), "--name", "old")
    assert refused.code == 2
    assert "min or max" in refused.err
    done = ratchet("research", "import", str(state), "--name", "old", "--direction", "max", "--task", "luck")
    assert done.code == 0, done.err
    status = ratchet("research", "status", "old", "--json").json
    assert (status["task"], status["direction"]) == ("luck", "max")


def test_a_name_is_taken_once(ratchet: Ratchet, state: Path, ledger: Ledger) -> None:
    assert ratchet("research", "import", str(state), "--name", "old").code == 0
    again = ratchet("research", "import", str(state), "--name", "old")
    assert again.code == 1
    assert "called 'old' already" in again.err
    with ledger.read() as tx:
        assert len(list_runs(tx, kind="research")) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("import", "STATE"), "--name"),
        (("import", "STATE", "--name", "12"), "cannot be called '12'"),
        (("import", "STATE", "--name", "old", "--direction", "up"), "--direction"),
        (("import", "nowhere", "--name", "old"), "nowhere"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_cannot_be_meant_is_refused(
    ratchet: Ratchet, ledger: Ledger, state: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = ratchet("research", *(str(state) if each == "STATE" else each for each in arguments))
    assert done.code == 2
    assert told in done.err
    assert ratchet("research", "list", "--json").json == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_run_that_is_not_there_is_not_exported(ratchet: Ratchet, ledger: Ledger, tmp_path: Path) -> None:
    done = ratchet("research", "export", "nobody", str(tmp_path / "out"))
    assert (done.code, "research run nobody does not exist" in done.err) == (1, True)
    assert not (tmp_path / "out").exists()
