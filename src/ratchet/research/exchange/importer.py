"""Importing a state directory as a research run that has ended, with the recipes that it kept as commits."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.files import take_lock, try_lock
from ratchet.kernel import Conflict, Direction, Misuse, NotFound, RunId, RunStatus, TrialStatus, new_id
from ratchet.ledger import Ledger, Transaction, change_run
from ratchet.ledger.research import add_lesson, open_research, set_baseline
from ratchet.ledger.runs import create_run, get_run, list_runs
from ratchet.ledger.trials import ImportedTrial, import_trials
from ratchet.research.campaign import check_name
from ratchet.research.decision import MeasuredBaseline
from ratchet.research.exchange.rows import Remark, Remarks, ResultRow, counts, measurements
from ratchet.research.exchange.state import ImportedState, Mismatch, read_state, replay
from ratchet.research.exchange.tsv import RESULTS, SNAPSHOTS, read_bytes, read_number, score_text
from ratchet.workspaces import Repository, UnsafePath
from ratchet.workspaces.directories import remove_tree

_PREFIX = ".import-"
_LOCK = ".imports.lock"
_RUN = "run"


class ImportStage:
    """A directory of one import. `name` goes into the run's spec, by which the two are known to belong together."""

    def __init__(self, research: Path) -> None:
        self.name = new_id(_PREFIX.rstrip("-"))
        self.path = research / self.name
        self.recorded = False

    @property
    def repository(self) -> Path:
        return self.path / "repo.git"

    def give_to(self, run_id: int) -> None:
        """Note whose it is, before that run is committed."""
        if self.path.is_dir():
            (self.path / _RUN).write_text(str(run_id))

    def put_in_place(self, run_id: int) -> None:
        """Give it to the run for good, once that is committed. Raises `Conflict`; it stays where it is then."""
        self.recorded = True
        if self.path.is_dir():
            _put_in_place(self.path, run_id)


@contextlib.contextmanager
def staged(ledger: Ledger, home: Path) -> Iterator[ImportStage]:
    """A stage for one import, removed at the end unless its run was recorded."""
    research = home / "research"
    research.mkdir(parents=True, exist_ok=True)
    # Whoever imports shares the lock; who has it alone knows that every stage was left by a dead process.
    lock = os.open(research / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if try_lock(lock):
            _tidy(ledger, research)
        take_lock(lock, shared=True)
        stage = ImportStage(research)
        try:
            yield stage
        finally:
            if not stage.recorded:
                remove_tree(stage.path)
    finally:
        os.close(lock)


def _tidy(ledger: Ledger, research: Path) -> None:
    for left in sorted(research.glob(f"{_PREFIX}*")):
        run_id = _owner(ledger, left)
        if run_id is None:
            remove_tree(left)
        else:
            _put_in_place(left, run_id)


def _owner(ledger: Ledger, left: Path) -> int | None:
    """The recorded run that a stage belongs to."""
    with contextlib.suppress(OSError, ValueError, NotFound), ledger.read() as tx:
        run = get_run(tx, int((left / _RUN).read_text()))
        if run.spec.get("imported", {}).get("stage") == left.name:
            return run.id
    return None


def _put_in_place(path: Path, run_id: int) -> None:
    place = path.parent / str(run_id)
    try:
        path.rename(place)
    except OSError as error:
        raise Conflict(
            f"the repository of run {run_id} cannot be put at {place}: {error.strerror}",
            hint=f"move away what is there; the next import puts {path.name} in its place",
        ) from error


BEST = "refs/heads/best"
_ALL = "all"
_MOST_FILES = 2000
_MOST_BYTES = 64 * 1024 * 1024
_MOST_DEPTH = 20
# What an evaluation left behind, and helpers that are nobody's recipe.
_OUTPUTS = frozenset({"eval", "__pycache__"})
_HELPERS = frozenset({"pack_submission.py"})
_DEFAULT = "recipe.py"


@dataclass(frozen=True, slots=True)
class RecipeSnapshot:
    """Where the recipe of a trial lies: a directory, or the main file alone."""

    path: Path
    whole: bool


def find_snapshots(imported: ImportedState, remarks: Remarks) -> dict[int, RecipeSnapshot]:
    """The snapshots that are there, by the number of their trial."""
    root = imported.blackboard / SNAPSHOTS
    if root.is_symlink() or not root.is_dir():
        return {}
    found: dict[int, RecipeSnapshot] = {}
    for row in imported.rows:
        named = imported.layout.cell(row.cells, "snapshot_path")
        alone = root / _ALL / f"{row.exp_id}.py"
        if named and not _is_plain(named):
            remarks.warn(RESULTS, f"its snapshot_path {named[:80]!r} leads elsewhere", row.line, row.exp_id)
        elif named and _is_directory(imported.blackboard, PurePosixPath(named)):
            found[row.number] = RecipeSnapshot(imported.blackboard / named, whole=True)
        if row.number not in found and _is_directory(root, PurePosixPath(_ALL)) and os.path.lexists(alone):
            found[row.number] = RecipeSnapshot(alone, whole=False)
    return found


def commit_snapshots(
    repository: Repository, imported: ImportedState, found: Mapping[int, RecipeSnapshot], remarks: Remarks
) -> dict[int, str]:
    """A commit for each snapshot, on top of that of its nearest ancestor that has one; their hashes by number.

    Each has a ref below refs/trials, and refs/heads/best is at the last that was kept.
    """
    recipe = _recipe_name(found)
    rows = {row.number: row for row in imported.rows}
    commits: dict[int, str] = {}
    for number in sorted(found):
        row = rows[number]
        parent = _ancestor(row, rows, commits)
        try:
            files = _files(found[number], recipe)
            hash_ = _commit(repository, row, files, parent, whole=found[number].whole)
        except (Misuse, UnsafePath, OSError) as error:
            remarks.warn(SNAPSHOTS, f"its snapshot was left out: {error}", exp_id=row.exp_id)
            continue
        repository.advance(f"refs/trials/{row.exp_id}", hash_, expected=None)
        commits[number] = hash_
    best = imported.best_row
    if best is not None and best.number in commits:
        repository.advance(BEST, commits[best.number], expected=None)
    return commits


def _commit(
    repository: Repository, row: ResultRow, files: Mapping[str, bytes], parent: str | None, *, whole: bool
) -> str:
    gone = [path for path in repository.list_files(parent) if path not in files] if parent and whole else []
    return repository.commit_files(
        {**files, **dict.fromkeys(gone)},
        parent=parent,
        message=f"{row.exp_id} {row.status}: {row.hypothesis}",
        # The same snapshot gives the same commit, whenever it is imported.
        at=(row.at or 0) // 1000,
    )


def _ancestor(row: ResultRow, rows: Mapping[int, ResultRow], commits: Mapping[int, str]) -> str | None:
    """The commit of the nearest ancestor that has one. Parents come before their children, so this ends."""
    above = row
    while above.parent is not None and above.parent < above.number and above.parent in rows:
        above = rows[above.parent]
        if above.number in commits:
            return commits[above.number]
    return None


def _recipe_name(found: Mapping[int, RecipeSnapshot]) -> str:
    """What the main file is called: the Python file that most snapshots have at their top."""
    names: Counter[str] = Counter()
    for snapshot in found.values():
        if snapshot.whole:
            with os.scandir(snapshot.path) as entries:
                names.update(
                    each.name
                    for each in entries
                    if each.name.endswith(".py")
                    and not each.name.endswith("_packed.py")
                    and each.name not in _HELPERS
                )
    return min(names, key=lambda name: (-names[name], name)) if names else _DEFAULT


def _files(snapshot: RecipeSnapshot, recipe: str) -> dict[str, bytes]:
    """The content of a snapshot. Raises `Misuse` or `OSError`."""
    if not snapshot.whole:
        return {recipe: read_bytes(snapshot.path, _MOST_BYTES)}
    files: dict[str, bytes] = {}
    left = _MOST_BYTES
    for path in _walk(snapshot.path, 0):
        if len(files) == _MOST_FILES:
            raise Misuse(f"it has more than {_MOST_FILES} files")
        content = read_bytes(path, left)
        left -= len(content)
        files[path.relative_to(snapshot.path).as_posix()] = content
    if not files:
        raise Misuse("it is empty")
    return files


def _walk(directory: Path, depth: int) -> Iterator[Path]:
    if depth > _MOST_DEPTH:
        raise Misuse(f"it is more than {_MOST_DEPTH} directories deep")
    with os.scandir(directory) as listing:
        entries = sorted(listing, key=lambda each: each.name)
    for each in entries:
        if each.is_symlink():
            raise Misuse(f"{each.name!r} in it is a symbolic link")
        if not each.is_dir():
            yield Path(each.path)
        elif each.name not in _OUTPUTS:
            yield from _walk(Path(each.path), depth + 1)


def _is_plain(named: str) -> bool:
    parts = named.split("/")
    return parts[0] == SNAPSHOTS and len(parts) > 1 and not {"", ".", ".."} & set(parts)


def _is_directory(root: Path, below: PurePosixPath) -> bool:
    """Whether this is a directory that no link leads to or out of."""
    at = root
    for part in below.parts:
        at /= part
        if at.is_symlink() or not at.is_dir():
            return False
    return True


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
        commits: dict[int, str] = {}
        if found := find_snapshots(imported, remarks):
            with Repository.create(stage.repository) as repository:
                commits = commit_snapshots(repository, imported, found, remarks)
        report = _report(imported, commits, tuple(remarks.made))
        with ledger.write(actor=actor) as tx:
            run_id = _record(tx, imported, commits, report, name, task, stage)
            stage.give_to(run_id)
            tx.after_commit(lambda: stage.put_in_place(run_id))
    return ImportedRun(run_id, report)


def _report(imported: ImportedState, commits: Mapping[int, str], more: tuple[Remark, ...]) -> ImportReport:
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
    imported: ImportedState,
    commits: Mapping[int, str],
    report: ImportReport,
    name: str,
    task: str | None,
    stage: ImportStage,
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


def _spec(imported: ImportedState, task: str, stage: ImportStage | None) -> dict[str, Any]:
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


def _trials(imported: ImportedState, commits: Mapping[int, str], now: int) -> Iterator[ImportedTrial]:
    """The rows in the order of the file. A parent is as it came, unless it is no row or descends from its child."""
    layout = imported.layout
    parents = _parents(imported.rows)
    depths = _depths(parents)
    at = next((row.at for row in imported.rows if row.at is not None), now)
    for row in imported.rows:
        at = at if row.at is None else row.at
        means = measurements(row, layout)
        specialist = layout.cell(row.cells, "specialist")
        yield ImportedTrial(
            number=row.number,
            parent=parents[row.number],
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
            imported={
                "row": layout.named(row.cells),
                **({} if row.raw is None else {"line": row.line, "raw": row.raw}),
            },
            at=at,
        )


def _parents(rows: tuple[ResultRow, ...]) -> dict[int, int | None]:
    """The parent of each row. Where they lead in a circle, the lowest number has none."""
    known = {row.number for row in rows}
    parents = {row.number: row.parent if row.parent in known else None for row in rows}
    # Every circle has a row whose parent came later, or is itself.
    for number in sorted(each for each, parent in parents.items() if parent is not None and parent >= each):
        seen: set[int] = set()
        above = parents[number]
        while above is not None and above != number and above not in seen:
            seen.add(above)
            above = parents[above]
        if above == number:
            parents[number] = None
    return parents


def _depths(parents: Mapping[int, int | None]) -> dict[int, int]:
    """How far each row is below a row without a parent."""
    depths: dict[int, int] = {}
    for number in parents:
        way = []
        above: int | None = number
        while above is not None and above not in depths:
            way.append(above)
            above = parents[above]
        first = 0 if above is None else depths[above] + 1
        depths |= {each: depth for depth, each in enumerate(reversed(way), start=first)}
    return depths


def _baseline(imported: ImportedState) -> dict[str, Any] | None:
    """What a run of Ratchet's own records of its baseline. The scores in the log count if they make up the row's."""
    row = next((row for row in imported.rows if row.status is TrialStatus.BASELINE), None)
    if row is None or row.score is None:
        return None
    means = dict(measurements(row, imported.layout))
    note = imported.calibration.get("note") or row.notes or row.hypothesis
    baseline = MeasuredBaseline((row.score,), means=means, note=note)
    logged = [
        read_number(each) for each in re.split(r"[\s,;\[\]()]+", imported.calibration.get("scores", ""))
    ]
    samples = tuple(each for each in logged if each is not None)
    if samples:
        calibrated = MeasuredBaseline(samples, means=means, note=note)
        if score_text(calibrated.mean) == score_text(row.score):
            baseline = calibrated
    return baseline.record()
