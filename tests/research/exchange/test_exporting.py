"""Writing runs as state directories: imported ones, and Ratchet's own."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from ratchet.kernel import Conflict, Direction, Misuse, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson, open_research
from ratchet.ledger.runs import create_run
from ratchet.ledger.trials import Ending, Submission, end_trial, open_trial
from ratchet.research.adapter import TaskAdapter
from ratchet.research.exchange import export_run, import_run
from tests.ledger.conftest import MakeLedger
from tests.research.exchange.boards import PG, Board, files_of, small_board

NAMES = {"results.tsv", "tree.tsv", "best.json", "LEADERBOARD.md", "KNOWLEDGE.md"}


def own_run(ledger: Ledger) -> int:
    """A run of Ratchet's own: a baseline, a keep, a crash, an infrastructure error, and one in flight."""
    with ledger.write() as tx:
        run_id = create_run(tx, "research", "mine", spec={"task": "t", "task_hash": "h"})
        open_research(
            tx, run_id, task="t", score_field="metric", direction=Direction.MAX, keep_policy="confident"
        )
        first = Submission(specialist="baseline", hypothesis="as it came", commit="c0", parent=None)
        open_trial(tx, run_id, first, baseline=True)
        means = {"means": {"seconds": 1.5, "notes": 2.0, "a\tb": 3.0}}
        end_trial(tx, run_id, 0, Ending(status=TrialStatus.BASELINE, score=1.0, measurements=means))
        for hypothesis, ending in (
            (
                "go | on\nfurther",
                Ending(
                    status=TrialStatus.KEEP,
                    score=1.2345678,
                    delta=0.2345678,
                    compared_to=0,
                    measurements={"means": {"seconds": 0.25}},
                    wall_ms=1500,
                ),
            ),
            ("stop", Ending(status=TrialStatus.CRASH, reason="ValueError: no (recipe.py:3 in f)")),
            ("again", Ending(status=TrialStatus.INFRA_ERROR, reason="disk full")),
        ):
            given = Submission(specialist="opt", hypothesis=hypothesis, commit="c", parent=0, notes="a note")
            trial = open_trial(tx, run_id, given)
            end_trial(tx, run_id, trial.number, ending)
        open_trial(tx, run_id, Submission(specialist="opt", hypothesis="open", commit="c", parent=1))
        add_lesson(tx, run_id, "opt", "- Rates matter\n\n  most of all")
    return run_id


def rows(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text().split("\n")[:-1]]


def test_a_run_of_ones_own_has_the_columns_that_its_evaluator_measured(
    ledger: Ledger, tmp_path: Path
) -> None:
    count = export_run(ledger, own_run(ledger), tmp_path / "out")

    results = (tmp_path / "out" / "results.tsv").read_text()
    head = results.split("\n", 1)[0].split("\t")
    assert count == 4
    assert head[8:12] == ["status", "metric", "seconds", "delta_vs_best"]
    assert "keep\t1.234568\t0.250000\t+0.234568\t1.500000\t\t\ta note\n" in results
    assert '"go | on\nfurther"' in results
    assert "a note | ValueError: no (recipe.py:3 in f)\n" in results
    assert rows(tmp_path / "out" / "tree.tsv")[2][:8] == [
        *("001", "000", "1", "000/001"),
        *("opt", "keep", "1.234568", "+0.234568"),
    ]
    assert json.loads((tmp_path / "out" / "best.json").read_text())["metric"] == 1.2345678
    leaderboard = (tmp_path / "out" / "LEADERBOARD.md").read_text()
    assert "| 001 | 1.234568 | +0.234568 | opt | go \N{DIVIDES} on further |\n" in leaderboard
    knowledge = (tmp_path / "out" / "KNOWLEDGE.md").read_text()
    assert "| 002 | opt | crash | — | stop |" in knowledge
    assert "again" not in knowledge
    assert "- - Rates matter\n\n    most of all\n" in knowledge


def test_its_task_tells_the_columns_the_label_and_the_names_of_jobs(ledger: Ledger, tmp_path: Path) -> None:
    task = TaskAdapter(
        name="hill", root=tmp_path, score_field="metric", score_label="m", columns=("seconds", "watts")
    )

    export_run(ledger, own_run(ledger), tmp_path / "out", task=task)

    text = (tmp_path / "out" / "results.tsv").read_text()
    assert text.startswith("\t".join(task.tsv_columns) + "\n")
    assert "\t0.250000\t\t+0.234568\t1.500000\thil-opt-0001\t" in text
    assert "exp_001 [opt, keep, m=1.234568, Δ=+0.234568]" in (tmp_path / "out" / "KNOWLEDGE.md").read_text()


def test_a_run_without_a_trial_has_no_best(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.write() as tx:
        run_id = create_run(tx, "research", "new")
        open_research(
            tx, run_id, task="t", score_field="metric", direction=Direction.MAX, keep_policy="strict"
        )

    assert export_run(ledger, run_id, tmp_path / "out") == 0
    assert set(files_of(tmp_path / "out")) == NAMES - {"best.json"}


@pytest.mark.soak
def test_every_row_is_in_the_tree_after_its_parent(ledger: Ledger, tmp_path: Path) -> None:
    board = Board(PG)
    board.baseline(1.0)
    for number in range(1, 1203):
        board.add(2.0, f"{number // 3:03}")
    run_id = import_run(ledger, tmp_path, board.write(tmp_path / "s"), "old").run_id

    export_run(ledger, run_id, tmp_path / "out")

    tree = rows(tmp_path / "out" / "tree.tsv")[1:]
    assert len(tree) == 1203
    ways = [row[3].split("/") for row in tree]
    assert ways == sorted(ways)  # children in the order of their ids as text: 1000 before 999
    assert all(len(way) == int(row[2]) + 1 and way[-1] == row[0] for way, row in zip(ways, tree, strict=True))


def test_a_directory_that_is_not_empty_is_left_alone_unless_told(ledger: Ledger, tmp_path: Path) -> None:
    run_id = own_run(ledger)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep me")

    with pytest.raises(Conflict, match="is not empty"):
        export_run(ledger, run_id, out)
    assert set(files_of(out)) == {"mine.txt"}

    (out / "best.json").symlink_to(out / "mine.txt")
    export_run(ledger, run_id, out, overwrite=True)
    assert set(files_of(out)) == NAMES | {"mine.txt"}
    assert (out / "mine.txt").read_text() == "keep me"
    assert not (out / "best.json").is_symlink()
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


def test_an_empty_directory_and_what_a_dead_export_left_are_used(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / ".out.unfinished").mkdir()
    (tmp_path / ".out.unfinished" / "half").write_text("half a li")

    export_run(ledger, own_run(ledger), tmp_path / "out")

    assert set(files_of(tmp_path / "out")) == NAMES
    assert not (tmp_path / ".out.unfinished").exists()


def test_a_file_is_no_place_to_export_to(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")

    with pytest.raises(Misuse, match="not a directory"):
        export_run(ledger, own_run(ledger), tmp_path / "out")
    with pytest.raises(Misuse, match="cannot be written"):
        export_run(ledger, own_run(ledger), tmp_path / "out" / "below")


def test_a_repaired_row_is_written_whole(ledger: Ledger, tmp_path: Path) -> None:
    board = small_board()
    board.rows[1]["hypothesis"] = 'Rate</hypothesis>\n<parameter name="notes">why'
    first = import_run(ledger, tmp_path, board.write(tmp_path / "s"), "first").run_id

    export_run(ledger, first, tmp_path / "out")

    assert (tmp_path / "out" / "results.tsv").read_text() == board.results()
    assert (tmp_path / "out" / "tree.tsv").read_text() == board.tree()
    assert (tmp_path / "out" / "best.json").read_text() == json.dumps(
        board.best_record(), indent=2, ensure_ascii=False
    ) + "\n"


@pytest.mark.soak
def test_a_long_run_takes_no_more_memory_than_a_short_one(make_ledger: MakeLedger, tmp_path: Path) -> None:
    ledger = make_ledger("sqlite")
    peaks = []
    for count in (200, 200, 2000):  # the first time, much is loaded that stays
        board = Board(PG)
        board.baseline(1.0)
        for _ in range(count):
            board.add(2.0, notes="n" * 2000)
        state = board.write(tmp_path / f"state-{len(peaks)}")
        run_id = import_run(ledger, tmp_path, state, f"run-{len(peaks)}").run_id
        tracemalloc.start()
        export_run(ledger, run_id, tmp_path / f"out-{len(peaks)}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[2] < 1.5 * peaks[1]
