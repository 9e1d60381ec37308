"""Importing a state directory as a run: all of it or nothing, with its recipes as commits where there are any."""

from __future__ import annotations

import subprocess
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger import events as log
from ratchet.ledger.research import find_research, get_standing, list_lessons
from ratchet.ledger.runs import get_run, list_runs
from ratchet.ledger.trial_pages import ancestors, children, kept_trials, latest_trials, tallies
from ratchet.ledger.trials import get_trial
from ratchet.research.exchange import export_run, import_run
from ratchet.research.exchange.importer import staged
from ratchet.workspaces import Repository
from tests.ledger.actors import acting, place_of
from tests.research.exchange.boards import CIFAR, NC, PG, small_board


@pytest.mark.parametrize(("columns", "lower"), [(PG, True), (CIFAR, True), (NC, False)])
def test_rows_of_every_task_become_trials(
    ledger: Ledger, tmp_path: Path, columns: tuple[str, ...], lower: bool
) -> None:
    made = import_run(ledger, tmp_path, small_board(columns, lower=lower).write(tmp_path / "s"), "old")

    with ledger.read() as tx:
        standing = get_standing(tx, made.run_id)
        trials = latest_trials(tx, made.run_id)
        assert find_research(tx, "old") == made.run_id
        assert tallies(tx, made.run_id)["opt"] == {
            TrialStatus.CRASH: 1,
            TrialStatus.DISCARD: 2,
            TrialStatus.KEEP: 2,
            TrialStatus.SIZE_BLOCKED: 1,
        }
        assert [each.number for each in kept_trials(tx, made.run_id)] == [4, 1, 0]
        assert [each.number for each in ancestors(tx, made.run_id, 5)] == [5, 4, 1, 0]
        assert [each.number for each in children(tx, made.run_id, 1)] == [4, 3, 2]
    assert standing.score_field == columns[9]
    assert (standing.best, standing.trials, standing.next_number) == (4, 6, 7)
    assert [each.depth for each in reversed(trials)] == [0, 1, 2, 2, 2, 3, 3]
    assert made.report.counts == {"repaired": 0, "rejected": 0, "warning": 1}  # there is no KNOWLEDGE.md
    assert made.report.mismatches == ()


def test_a_parent_that_is_no_row_or_leads_in_a_circle_is_none(ledger: Ledger, tmp_path: Path) -> None:
    board = small_board()
    for number, parent in ((1, "004"), (3, "003"), (4, "001"), (5, "somewhere"), (6, "099")):
        board.rows[number]["parent_exp"] = parent

    run_id = import_run(ledger, tmp_path, board.write(tmp_path / "s"), "old").run_id

    with ledger.read() as tx:
        trials = [get_trial(tx, run_id, number) for number in range(7)]
    assert [each.parent for each in trials] == [None, None, 1, None, 1, None, None]
    assert [each.depth for each in trials] == [0, 0, 1, 0, 1, 0, 0]


def test_quarantined_rows_are_not_counted_as_trials(ledger: Ledger, tmp_path: Path) -> None:
    board = small_board()
    board.add(None, status="harness_abort", notes="[QUARANTINED]")

    run_id = import_run(ledger, tmp_path, board.write(tmp_path / "s"), "old").run_id

    with ledger.read() as tx:
        standing = get_standing(tx, run_id)
    assert (standing.trials, standing.next_number) == (6, 8)


def test_lessons_and_the_calibration_come_along(ledger: Ledger, tmp_path: Path) -> None:
    board = small_board().write(tmp_path / "s") / "blackboard"
    (board / "KNOWLEDGE.md").write_text("## Key Insights\n- Warmup helps\n- Depth does not\n")
    (board / "calibration.log").write_text(
        "# 2026-04-28T05:24:48Z baseline calibration\ntask_pkg: small_pg\nscores: [1.07, 1.09]\nnote: two runs\n"
    )

    run_id = import_run(ledger, tmp_path, board, "old").run_id

    with ledger.read() as tx:
        standing = get_standing(tx, run_id)
        lessons = [each.text for each in list_lessons(tx, run_id)]
    assert lessons == ["Depth does not", "Warmup helps"]
    assert standing.task == "small_pg"
    baseline = dict(standing.baseline or {})
    assert (baseline["samples"], baseline["n"], baseline["told"]) == ([1.07, 1.09], 2, "two runs")


def test_the_report_is_in_the_run_and_its_repairs_are_told(ledger: Ledger, tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "s")
    path = state / "blackboard" / "results.tsv"
    path.write_text(path.read_text().replace("\tkeep\t1.070000", "\tkeep\tNaN"))

    made = import_run(ledger, tmp_path, state, "old")

    with ledger.read() as tx:
        result = get_run(tx, made.run_id).result
    assert (result["rows"], result["rejected"]) == (6, 1)
    assert any("results.tsv:3: rejected: its val_bpb is 'NaN'" in remark for remark in result["remarks"])
    assert result["mismatches"] == len(made.report.mismatches) > 0


@pytest.mark.parametrize("name", ["", "  ", "17", "a\nb", "x" * 201])
def test_a_name_that_is_none_is_refused(ledger: Ledger, tmp_path: Path, name: str) -> None:
    with pytest.raises(Misuse, match="cannot be called"):
        import_run(ledger, tmp_path, small_board().write(tmp_path / "s"), name)


def test_a_name_is_taken_once(ledger: Ledger, tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "s")
    import_run(ledger, tmp_path, state, "old")

    with pytest.raises(Conflict, match="called 'old' already"):
        import_run(ledger, tmp_path, state, "old")

    with ledger.read() as tx:
        assert len(list_runs(tx, kind="research")) == 1


def with_snapshots(place: Path) -> Path:
    board = small_board()
    state = board.write(place)
    snapshots = state / "blackboard" / "snapshots"
    for number, rate in (("001", 1), ("004", 2)):
        kept = snapshots / f"{number}_opt"
        (kept / "lib").mkdir(parents=True)
        (kept / "eval").mkdir()
        (kept / "train.py").write_text(f"RATE = {rate}\n")
        (kept / "train_packed.py").write_text("packed\n")
        (kept / "lib" / f"part{rate}.py").write_text("")
        (kept / "eval" / "result.json").write_text("{}")
    (snapshots / "all").mkdir()
    for number in ("000", "002", "005"):
        (snapshots / "all" / f"{number}.py").write_text(f"RATE = {int(number)}\n")
    return state


def git(repository: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(repository), *words], check=True, capture_output=True, text=True
    ).stdout


def test_snapshots_become_commits_with_the_lineage_of_their_trials(ledger: Ledger, tmp_path: Path) -> None:
    made = import_run(ledger, tmp_path, with_snapshots(tmp_path / "s"), "old")

    place = tmp_path / "research" / str(made.run_id) / "repo.git"
    with Repository.open(place) as repository, ledger.read() as tx:
        commits = {number: get_trial(tx, made.run_id, number).commit for number in range(7)}
        standing = get_standing(tx, made.run_id)
        assert made.report.commits == 5
        assert commits[3] is None
        assert repository.ref("refs/trials/004") == repository.ref("refs/heads/best") == commits[4]
        assert standing.best_commit == commits[4]
        assert [entry.hash for entry in repository.log(str(commits[5]))] == [
            commits[number] for number in (5, 4, 1, 0)
        ]
        assert list(repository.list_files(str(commits[4]))) == ["lib/part2.py", "train.py", "train_packed.py"]
        assert repository.read_file(str(commits[2]), "train.py") == b"RATE = 2\n"
        assert repository.read_file(str(commits[5]), "lib/part2.py") == b""
    assert git(place, "fsck", "--strict") == ""
    assert not list((tmp_path / "research").glob(".import-*"))


def test_snapshots_that_lead_elsewhere_are_left_out(ledger: Ledger, tmp_path: Path) -> None:
    state = with_snapshots(tmp_path / "s")
    board = state / "blackboard"
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    (board / "snapshots" / "001_opt" / "leak").symlink_to(tmp_path / "secret" / "key")
    (board / "snapshots" / "all" / "002.py").unlink()
    (board / "snapshots" / "all" / "002.py").symlink_to(tmp_path / "secret" / "key")
    results = board / "results.tsv"
    results.write_text(results.read_text().replace("snapshots/004_opt", "snapshots/../../../secret"))

    made = import_run(ledger, tmp_path, state, "old")

    with ledger.read() as tx:
        assert [get_trial(tx, made.run_id, number).commit for number in (1, 2, 4)] == [None, None, None]
    told = [str(remark) for remark in made.report.remarks]
    assert any("'snapshots/../../../secret' leads elsewhere" in remark for remark in told)
    assert any("001: its snapshot was left out: 'leak' in it is a symbolic link" in remark for remark in told)
    assert any("002: its snapshot was left out" in remark for remark in told)


def import_slowly(pipe: Connection, url: str, artifacts: Path, home: Path, state: Path) -> None:
    pipe.send("ready")
    with Ledger.open(url, artifacts) as ledger:
        import_run(ledger, home, state, "old")
    pipe.send("done")


def big_state(place: Path) -> Path:
    board = small_board()
    for _ in range(1000):
        board.add(2.0, "004")
    state = board.write(place)
    for number in ("000", "001", "002", "003", "004"):
        alone = state / "blackboard" / "snapshots" / "all" / f"{number}.py"
        alone.parent.mkdir(parents=True, exist_ok=True)
        alone.write_text(number)
    return state


@pytest.mark.soak
@pytest.mark.parametrize("delay", [0.0, 0.2, 0.5, 1.0])
def test_an_import_that_is_killed_leaves_all_or_nothing(ledger: Ledger, tmp_path: Path, delay: float) -> None:
    state = big_state(tmp_path / "s")
    with acting(import_slowly, *place_of(ledger), tmp_path, state) as (process, pipe):
        pipe.recv()
        process.join(delay)  # wherever it is by then
        process.kill()
        process.join()

    with ledger.read() as tx:
        found = list_runs(tx, kind="research")
    for run in found:
        with ledger.read() as tx:
            assert get_standing(tx, run.id).next_number == 1007
            assert len(latest_trials(tx, run.id, limit=5000)) == 1007
    made = import_run(ledger, tmp_path, state, "again")
    research = tmp_path / "research"
    assert sorted(path.name for path in research.iterdir() if not path.name.startswith(".imports")) == sorted(
        str(number) for number in (*(run.id for run in found), made.run_id)
    )


def test_a_repository_that_a_dead_import_left_gets_its_place(ledger: Ledger, tmp_path: Path) -> None:
    run_id = import_run(ledger, tmp_path, with_snapshots(tmp_path / "s"), "old").run_id
    research = tmp_path / "research"
    with ledger.read() as tx:
        stage = get_run(tx, run_id).spec["imported"]["stage"]
    (research / str(run_id)).rename(research / stage)
    (research / ".import-of-nobody").mkdir()

    with staged(ledger, tmp_path):
        pass

    assert (research / str(run_id) / "repo.git").is_dir()
    assert not list(research.glob(".import-*"))


def test_a_failed_import_leaves_nothing(ledger: Ledger, tmp_path: Path) -> None:
    state = with_snapshots(tmp_path / "s")
    import_run(ledger, tmp_path, state, "old")
    before = sorted((tmp_path / "research").iterdir())

    with pytest.raises(Conflict):
        import_run(ledger, tmp_path, state, "old")

    assert sorted((tmp_path / "research").iterdir()) == before


def test_an_import_is_a_few_events_however_many_rows_it_has(ledger: Ledger, tmp_path: Path) -> None:
    run_id = import_run(ledger, tmp_path, small_board().write(tmp_path / "s"), "old", actor="ann").run_id

    with ledger.read() as tx:
        types = [(event.type, event.actor) for event in log.since(tx.connection) if event.run_id == run_id]
    assert types == [("run.created", "ann"), ("run.running", "ann"), ("run.completed", "ann")]


def test_a_run_that_does_not_exist_is_not_exported(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        export_run(ledger, 7, tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


def test_a_parent_that_came_later_stays_the_parent(ledger: Ledger, tmp_path: Path) -> None:
    board = small_board()
    board.rows[1]["parent_exp"] = "004"
    board.rows[4]["parent_exp"] = "000"

    run_id = import_run(ledger, tmp_path, board.write(tmp_path / "s"), "old").run_id

    with ledger.read() as tx:
        trials = [get_trial(tx, run_id, number) for number in range(5)]
        line = [each.number for each in ancestors(tx, run_id, 1)]
    assert [each.parent for each in trials] == [None, 4, 1, 1, 0]
    assert [each.depth for each in trials] == [0, 2, 3, 3, 1]
    assert line == [1, 4, 0]


def test_a_timeout_of_another_system_ran_for_too_long(ledger: Ledger, tmp_path: Path) -> None:
    board = small_board()
    board.add(None, status="timeout", notes="600 s")

    made = import_run(ledger, tmp_path, board.write(tmp_path / "s"), "old")

    number = len(board.rows) - 1
    with ledger.read() as tx:
        assert get_trial(tx, made.run_id, number).status is TrialStatus.TRAIN_BUDGET_OVERRUN
    assert made.report.counts["rejected"] == 0
    export_run(ledger, made.run_id, tmp_path / "copy")
    assert "\ttimeout\t" in (tmp_path / "copy" / "results.tsv").read_text()
