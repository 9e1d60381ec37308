"""Importing a state directory as a research run that has ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.kernel import Conflict, Direction, RunId, RunStatus, TrialStatus
from ratchet.ledger import Ledger, Transaction, change_run
from ratchet.ledger.lessons import add_lesson
from ratchet.ledger.research import open_research, set_baseline
from ratchet.ledger.runs import create_run, list_runs
from ratchet.ledger.trials import ImportedTrial, import_trials
from ratchet.research.exchange._replay import Mismatch, replay
from ratchet.research.exchange.numbers import read_number, score_text
from ratchet.research.exchange.remarks import Remark, Remarks, counts
from ratchet.research.exchange.rows import Row, measurements
from ratchet.research.exchange.snapshots import commit_snapshots, find_snapshots
from ratchet.research.exchange.staging import Stage, staged
from ratchet.research.exchange.state import Imported, read_state
from ratchet.research.keeping import Baseline
from ratchet.research.naming import check_name
from ratchet.workspaces import Repository

AUTHOR = "imported"
# As much of a report as goes into the run's row; the caller gets all of it.
_REMARKS_KEPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What came of an import. `mismatches` are where the strict rule gives something else than the rows say."""

    score_field: str
    direction: Direction
    rows: int
    by_status: Mapping[str, int]
    commits: int
    lessons: int
    best: str | None
    best_score: float | None
    remarks: tuple[Remark, ...]
    mismatches: tuple[Mismatch, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rows were repaired, rejected and warned about."""
        return counts(self.remarks)

    def to_dict(self, limit: int | None = None) -> dict[str, Any]:
        return {
            "score_field": self.score_field,
            "direction": str(self.direction),
            "rows": self.rows,
            "by_status": dict(self.by_status),
            "commits": self.commits,
            "lessons": self.lessons,
            "best": None if self.best is None else {"exp_id": self.best, "score": self.best_score},
            **self.counts,
            "mismatches": len(self.mismatches),
            "remarks": [str(each) for each in (*self.remarks, *self.mismatches)][:limit],
        }


@dataclass(frozen=True, slots=True)
class ImportedRun:
    run_id: RunId
    report: ImportReport


def import_run(
    ledger: Ledger,
    home: Path,
    directory: Path,
    name: str,
    *,
    task: str | None = None,
    direction: Direction | None = None,
    actor: str = "ratchet",
) -> ImportedRun:
    """Read a state directory and record it as a completed run, all of it in one transaction.

    Raises `Misuse` when there is nothing to import or the name cannot be one, `Conflict` when it is taken.
    """
    check_name(name)
    imported = read_state(directory, direction=direction)
    with staged(ledger, home) as stage:
        remarks = Remarks()
        commits = _commits(stage, imported, remarks)
        report = _report(imported, commits, tuple(remarks.made))
        with ledger.write(actor=actor) as tx:
            run_id = _record(tx, imported, commits, report, name, task, stage)
            stage.give_to(run_id)
            tx.after_commit(lambda: stage.put_in_place(run_id))
    return ImportedRun(run_id, report)


def _commits(stage: Stage, imported: Imported, remarks: Remarks) -> dict[int, str]:
    found = find_snapshots(imported, remarks)
    if not found:
        return {}
    with Repository.create(stage.repository) as repository:
        return commit_snapshots(repository, imported, found, remarks)


def _report(imported: Imported, commits: Mapping[int, str], more: tuple[Remark, ...]) -> ImportReport:
    best = imported.best_row
    return ImportReport(
        score_field=imported.layout.score,
        direction=imported.direction,
        rows=len(imported.rows),
        by_status=Counter(str(row.status) for row in imported.rows),
        commits=len(commits),
        lessons=len(imported.lessons),
        best=None if best is None else best.exp_id,
        best_score=None if best is None else best.score,
        remarks=(*imported.remarks, *more),
        mismatches=replay(imported).mismatches,
    )


def _record(
    tx: Transaction,
    imported: Imported,
    commits: Mapping[int, str],
    report: ImportReport,
    name: str,
    task: str | None,
    stage: Stage,
) -> RunId:
    tx.lock_keys(f"research import {name}")
    taken = list_runs(tx, kind="research", name=name, limit=1)
    if taken:
        raise Conflict(f"research run {taken[0].id} is called {name!r} already", hint="choose another name")
    task = task or imported.calibration.get("task_pkg") or name
    run_id = create_run(tx, "research", name, spec=_spec(imported, task, stage if commits else None))
    open_research(
        tx,
        run_id,
        task=task,
        score_field=imported.layout.score,
        direction=imported.direction,
        keep_policy="strict",
    )
    change_run(tx, run_id, RunStatus.RUNNING, reason="importing")
    import_trials(tx, run_id, _trials(imported, commits, tx.now))
    baseline = _baseline(imported)
    if baseline is not None:
        set_baseline(tx, run_id, baseline)
    for lesson in imported.lessons:
        add_lesson(tx, run_id, AUTHOR, lesson)
    change_run(
        tx,
        run_id,
        RunStatus.COMPLETED,
        reason=f"imported {report.rows} rows",
        result=report.to_dict(_REMARKS_KEPT),
    )
    return run_id


def _spec(imported: Imported, task: str, stage: Stage | None) -> dict[str, Any]:
    """The mark of an imported run, with what an export needs to write it as it was."""
    return {
        "task": task,
        "imported": {
            "directory": str(imported.blackboard.absolute()),
            "columns": list(imported.layout.columns),
            "score_field": imported.layout.score,
            "label": imported.label,
            "best": imported.best,
            "calibration": dict(imported.calibration),
            "stage": None if stage is None else stage.name,
        },
    }


def _trials(imported: Imported, commits: Mapping[int, str], now: int) -> Iterator[ImportedTrial]:
    """The rows in the order of the file. A parent that is no earlier row is none."""
    layout = imported.layout
    depths = _depths(imported.rows)
    at = next((row.at for row in imported.rows if row.at is not None), now)
    for row in imported.rows:
        at = at if row.at is None else row.at
        means = measurements(row, layout)
        specialist = layout.cell(row.cells, "specialist")
        yield ImportedTrial(
            number=row.number,
            parent=row.parent if depths[row.number] else None,
            depth=depths[row.number],
            compared_to=row.compared_to if row.compared_to in depths else None,
            specialist=specialist,
            domain=layout.cell(row.cells, "domain") or specialist,
            hypothesis=row.hypothesis,
            expected_delta=layout.cell(row.cells, "expected_delta"),
            notes=row.notes,
            commit=commits.get(row.number),
            status=row.status,
            score=row.score,
            delta=row.delta,
            measurements={"means": dict(means)} if means else None,
            imported=_origin(row, imported),
            at=at,
        )


def _depths(rows: tuple[Row, ...]) -> dict[int, int]:
    """How far each row is below a row without a parent."""
    depths: dict[int, int] = {}
    for row in sorted(rows, key=lambda each: each.number):
        # Only lower numbers are there by now, so that nobody is his own ancestor.
        depths[row.number] = 0 if row.parent not in depths else depths[row.parent] + 1
    return depths


def _origin(row: Row, imported: Imported) -> dict[str, Any]:
    origin: dict[str, Any] = {"row": imported.layout.named(row.cells)}
    return origin if row.raw is None else {**origin, "line": row.line, "raw": row.raw}


def _baseline(imported: Imported) -> dict[str, Any] | None:
    """What a run of Ratchet's own records of its baseline. The scores in the log count if they make up the row's."""
    row = next((row for row in imported.rows if row.status is TrialStatus.BASELINE), None)
    if row is None or row.score is None:
        return None
    means = dict(measurements(row, imported.layout))
    told = imported.calibration.get("note") or row.notes or row.hypothesis
    baseline = Baseline((row.score,), means=means, told=told)
    logged = [
        read_number(each) for each in re.split(r"[\s,;\[\]()]+", imported.calibration.get("scores", ""))
    ]
    samples = tuple(each for each in logged if each is not None)
    if samples:
        calibrated = Baseline(samples, means=means, told=told)
        if score_text(calibrated.mean) == score_text(row.score):
            baseline = calibrated
    return baseline.record()
