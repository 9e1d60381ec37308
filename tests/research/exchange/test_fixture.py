"""A real state directory: imported, decided again and written again, it is the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ratchet.kernel import Direction, RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import tallies
from ratchet.ledger.trials import get_trial
from ratchet.research.exchange import export_run, import_run, read_state, replay

BLACKBOARD = Path(__file__).parents[3].parent / "shared" / "fixtures" / "cifar" / "blackboard"
pytestmark = pytest.mark.skipif(not BLACKBOARD.is_dir(), reason="the fixture is not there")


def structured(tree: Path) -> list[list[str]]:
    """All columns but the hypothesis, whose spaces were tidied up after the file had been written."""
    return [line.split("\t")[:8] for line in tree.read_text().splitlines()]


def table(leaderboard: Path) -> list[str]:
    return [line for line in leaderboard.read_text().splitlines() if line.startswith("|")]


def test_it_is_read_without_a_doubt() -> None:
    imported = read_state(BLACKBOARD)

    assert len(imported.rows) == 98
    assert imported.remarks == ()
    assert imported.direction is Direction.MIN
    assert (imported.layout.score, imported.label) == ("train_s", "time")


def test_the_strict_rule_gives_the_same_history() -> None:
    decided = replay(read_state(BLACKBOARD))

    assert decided.kept == (7, 8, 30, 70)
    assert (decided.best, decided.best_score) == (70, 25.1464)
    assert decided.mismatches == ()


def test_import_and_export_give_the_same_files(ledger: Ledger, tmp_path: Path) -> None:
    made = import_run(ledger, tmp_path, BLACKBOARD.parent, "cifar")
    count = export_run(ledger, made.run_id, tmp_path / "out")

    out = tmp_path / "out"
    assert count == 98
    assert (out / "best.json").read_bytes() == (BLACKBOARD / "best.json").read_bytes()
    assert (out / "results.tsv").read_bytes() == (BLACKBOARD / "results.tsv").read_bytes()
    assert structured(out / "tree.tsv") == structured(BLACKBOARD / "tree.tsv")
    assert table(out / "LEADERBOARD.md") == table(BLACKBOARD / "LEADERBOARD.md")
    lineage = [line for line in (BLACKBOARD / "KNOWLEDGE.md").read_text().splitlines() if "exp_" in line[:16]]
    assert [
        line for line in (out / "KNOWLEDGE.md").read_text().splitlines() if "exp_" in line[:16]
    ] == lineage


@pytest.mark.soak
def test_the_best_is_found_without_its_file(ledger: Ledger, tmp_path: Path) -> None:
    shutil.copytree(BLACKBOARD, tmp_path / "board", ignore=shutil.ignore_patterns("best.json", "tree.tsv"))

    made = import_run(ledger, tmp_path, tmp_path / "board", "cifar")
    export_run(ledger, made.run_id, tmp_path / "out")

    assert (tmp_path / "out" / "best.json").read_bytes() == (BLACKBOARD / "best.json").read_bytes()
    assert structured(tmp_path / "out" / "tree.tsv") == structured(BLACKBOARD / "tree.tsv")


def test_the_ledger_has_the_run_as_if_it_had_run_here(ledger: Ledger, tmp_path: Path) -> None:
    run_id = import_run(ledger, tmp_path, BLACKBOARD, "cifar").run_id

    with ledger.read() as tx:
        run, standing, best = get_run(tx, run_id), get_standing(tx, run_id), get_trial(tx, run_id, 70)
        counted = tallies(tx, run_id)
    assert (run.kind, run.status) == ("research", RunStatus.COMPLETED)
    assert run.spec["imported"]["columns"][9] == "train_s"
    assert (standing.best, standing.best_score, standing.next_number) == (70, 25.1464, 98)
    assert (standing.trials, standing.direction, standing.keep_policy) == (97, Direction.MIN, "strict")
    assert (standing.baseline or {})["score"] == 26.356
    assert (best.parent, best.depth, best.compared_to, best.delta) == (30, 2, 30, -0.0795)
    assert best.imported["row"]["job_name"] == "cif-opt-0068"
    assert best.measurements["means"]["accuracy"] == 0.96008
    assert sum(count for by_status in counted.values() for count in by_status.values()) == 98
