"""Writing a research run as a state directory of the original: rows, best, leaderboard and knowledge."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from ratchet.files import try_lock
from ratchet.kernel import Conflict, Misuse, TrialStatus, exp_id
from ratchet.ledger import Ledger, Run, Transaction
from ratchet.ledger.research import Lesson, Standing, get_standing, list_lessons
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import ancestors, latest_trials, parents, trials_after, trials_at
from ratchet.ledger.trials import Trial, find_trial, get_trial
from ratchet.research.adapter import FIXED_COLUMNS, Specialist, TaskAdapter
from ratchet.research.decision.rule import delta_text
from ratchet.research.exchange.rows import ColumnLayout
from ratchet.research.exchange.state import insight_lines
from ratchet.research.exchange.tsv import (
    BEST,
    KNOWLEDGE,
    LEADERBOARD,
    RESULTS,
    TREE,
    flat,
    id_text,
    read_number,
    score_text,
    time_text,
    written,
)
from ratchet.research.views.trials import kept_best_first, measured

_BATCH = 100


class ExportOutline:
    """Children in the order of their ids as text, as the format has it."""

    def __init__(self, tx: Transaction, run_id: int) -> None:
        self._tx = tx
        self._run_id = run_id
        self._children: dict[int | None, list[int]] = defaultdict(list)
        for number, parent in parents(tx, run_id):
            self._children[parent].append(number)
        for found in self._children.values():
            found.sort(key=exp_id)

    def children(self, number: int) -> list[int]:
        return self._children.get(number, [])

    def trials(self, numbers: Iterator[int]) -> Iterator[Trial]:
        """The trials with these numbers, in the order given."""
        while wanted := list(islice(numbers, _BATCH)):
            found = {trial.number: trial for trial in trials_at(self._tx, self._run_id, wanted)}
            yield from (found[number] for number in wanted)

    def preorder(self) -> Iterator[tuple[Trial, list[str]]]:
        """Every trial after its parent, with the ids on the way to it, itself last."""
        numbers: list[int] = []
        way: list[str] = []
        for trial in self.trials(self._numbers()):
            while numbers and numbers[-1] != trial.parent:
                numbers.pop()
                way.pop()
            numbers.append(trial.number)
            way.append(trial.exp_id)
            yield trial, way

    def _numbers(self) -> Iterator[int]:
        waiting = list(reversed(self._children.get(None, [])))
        while waiting:
            number = waiting.pop()
            yield number
            waiting += reversed(self._children.get(number, []))


_COLUMN = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Format:
    """How a run is written: its columns, the short name of its score, and its task where that is known."""

    layout: ColumnLayout
    label: str
    task: TaskAdapter | None = None

    def cells(self, trial: Trial) -> Mapping[str, str]:
        """The cells by the names of their columns; one that there is not is empty."""
        if isinstance(trial.imported, dict):
            return defaultdict(str, trial.imported["row"])
        own = {
            "exp_id": trial.exp_id,
            "timestamp": time_text(trial.ended_at),
            "specialist": trial.specialist,
            "parent_exp": id_text(trial.parent),
            "baseline_exp": id_text(trial.compared_to),
            "domain": trial.domain,
            "hypothesis": trial.hypothesis,
            "expected_delta": trial.expected_delta,
            "status": str(trial.status),
            "delta_vs_best": delta_text(trial.delta),
            "total_s": "" if trial.wall_ms is None else score_text(trial.wall_ms / 1000),
            "job_name": self._job_name(trial),
            "snapshot_path": "",
            "notes": " | ".join(text for text in (trial.notes, trial.reason) if text),
        }
        numbers = {name: score_text(measured(trial, name)) for name in self.layout.measured}
        return defaultdict(str, {**numbers, **own, self.layout.score: score_text(trial.score)})

    def _job_name(self, trial: Trial) -> str:
        if self.task is None or trial.status is TrialStatus.BASELINE:
            return ""
        specialist = Specialist(name=trial.specialist, domain=trial.domain)
        return self.task.job_name(specialist, trial.number)


def format_of(run: Run, standing: Standing, first: Trial | None, task: TaskAdapter | None) -> Format:
    """The format of a run. Without its task, the columns are what was measured at the baseline, its trial `first`."""
    origin = run.spec.get("imported") if isinstance(run.spec, dict) else None
    if origin is not None:
        return Format(ColumnLayout(tuple(origin["columns"]), origin["score_field"]), origin["label"])
    if task is None:
        nameless = TaskAdapter(
            name=standing.task,
            root=Path(),
            score_field=standing.score_field,
            columns=_measured_names(first, standing.score_field),
        )
        return Format(ColumnLayout(nameless.tsv_columns, standing.score_field), standing.score_field)
    return Format(ColumnLayout(task.tsv_columns, task.score_field), task.label, task)


def _measured_names(first: Trial | None, score: str) -> tuple[str, ...]:
    found = first.measurements if first is not None and isinstance(first.measurements, dict) else {}
    means = found.get("means")
    names = means if isinstance(means, dict) else {}
    # An evaluator's own word need not be fit for the name of a column.
    return tuple(
        sorted(name for name in names if _COLUMN.fullmatch(name) and name not in {*FIXED_COLUMNS, score})
    )


_TOP = 20
_RECENT = 30
_NOTHING = "—"
# Looks like the bar that ends a cell, and ends none.
_BAR = "\N{DIVIDES}"
_LESSON_PAGE = 200
# A line of descent longer than this is read in tree.tsv.
_LONGEST_LINE = 1000


@dataclass(frozen=True, slots=True)
class BestRow:
    """The best trial, and what best.json says of it."""

    trial: Trial
    record: Mapping[str, Any]

    def json(self) -> str:
        return json.dumps(self.record, indent=2, ensure_ascii=False) + "\n"


def best_of(form: Format, trial: Trial, recorded: Mapping[str, Any] | None) -> BestRow:
    """`recorded` is what the best.json said that the run was imported with: it may know the score more exactly."""
    cells = form.cells(trial)
    score = read_number(cells[form.layout.score]) if trial.imported else trial.score
    record = {
        "exp_id": trial.exp_id,
        **{name: cells[name] for name in ("specialist", "domain", "hypothesis")},
        form.layout.score: score,
        "delta_vs_prev": cells["delta_vs_best"],
        **{name: cells[name] for name in ("timestamp", "snapshot_path")},
    }
    return BestRow(trial, record if recorded is None else recorded)


def leaderboard(tx: Transaction, run_id: int, form: Format, best: BestRow | None) -> Iterator[str]:
    score = form.layout.score
    yield "# Leaderboard\n*Written by Ratchet from its ledger; changes made here are lost.*\n\n## Current Best\n"
    if best is None:
        yield "Nothing yet.\n"
    else:
        cells = form.cells(best.trial)
        yield f"- **exp_id**: {best.trial.exp_id}\n"
        yield f"- **{score}**: {json.dumps(best.record.get(score))}\n"
        yield f"- **specialist**: {flat(cells['specialist'])}\n"
        yield f"- **hypothesis**: {flat(cells['hypothesis'])[:120]}\n"
        yield f"- **snapshot**: `{flat(cells['snapshot_path'])}`\n"
    yield f"\n## Top {_TOP} Kept Trials\n\n"
    yield from _head("exp", score, "Δ", "specialist", "hypothesis")
    for trial in kept_best_first(tx, run_id, limit=_TOP):
        cells = form.cells(trial)
        numbers = cells[score], cells["delta_vs_best"]
        yield _line(trial.exp_id, *numbers, cells["specialist"], _clipped(cells, 100))


def knowledge(
    tx: Transaction, run_id: int, form: Format, best: BestRow | None, outline: ExportOutline
) -> Iterator[str]:
    yield "# Research Knowledge Base\n*Written by Ratchet from its ledger; lessons are at the end.*\n\n"
    yield from _tree_notes(form)
    if best is not None:
        yield from _lineage(tx, run_id, form, best, outline)
    yield f"## Recent Activity (last {_RECENT})\n\n"
    yield from _head("exp", "specialist", "status", form.layout.score, "hypothesis")
    for trial in _recent(tx, run_id):
        cells = form.cells(trial)
        score = cells[form.layout.score] or _NOTHING
        yield _line(trial.exp_id, cells["specialist"], str(trial.status), score, _clipped(cells, 80))
    yield "\n"
    yield from insight_lines(lesson.text for lesson in _lessons(tx, run_id))


def _tree_notes(form: Format) -> Iterator[str]:
    yield (
        f"## Research Tree\nAll trials are in `{TREE}` beside this file, each after its parent: `exp_id, parent_exp,"
        f" depth, path, specialist, status, {form.layout.score}, delta_vs_best, hypothesis`, between tabs.\n\n"
    )
    yield "```\n# what came of 042, itself included\n"
    yield f"awk -F '\\t' '$4 ~ /(^|\\/)042(\\/|$)/' {TREE}\n"
    yield "# what was made from 042\n"
    yield f"awk -F '\\t' '$2 == \"042\"' {TREE}\n"
    yield "# what was kept, by score\n"
    yield f"awk -F '\\t' '$6 == \"keep\"' {TREE} | sort -t \"$(printf '\\t')\" -k 7,7g\n```\n\n"


def _lineage(
    tx: Transaction, run_id: int, form: Format, best: BestRow, outline: ExportOutline
) -> Iterator[str]:
    yield "**Current-best lineage** (root → best):\n```\n"
    line = ancestors(tx, run_id, best.trial.number, limit=_LONGEST_LINE)
    # Whole, since a line of a page leaves out the cells that a trial was imported with.
    for trial in outline.trials(each.number for each in reversed(line)):
        branch = "   " * trial.depth + "└─ " if trial.depth else ""
        mark = "  ← BEST" if trial.number == best.trial.number else ""
        yield f"{branch}{_described(form, trial)}{mark}\n"
    children = outline.children(best.trial.number)
    if children:
        yield f"\n**Best's direct children ({len(children)}):**\n"
        for trial in outline.trials(iter(children)):
            yield f"  • {_described(form, trial)}\n"
    yield "```\n\n"


def _described(form: Format, trial: Trial) -> str:
    cells = form.cells(trial)
    delta = cells["delta_vs_best"]
    facts = [
        flat(cells["specialist"]),
        str(trial.status),
        f"{form.label}={cells[form.layout.score] or _NOTHING}",
        *([f"Δ={flat(delta)}"] if delta else []),
    ]
    return f"exp_{trial.exp_id} [{', '.join(facts)}] {flat(cells['hypothesis'])[:100]}"


def _recent(tx: Transaction, run_id: int) -> list[Trial]:
    """The last trials that ended and tell something, newest first."""
    found: list[Trial] = []
    before: int | None = None
    while len(found) < _RECENT and (page := latest_trials(tx, run_id, before=before, limit=_LESSON_PAGE)):
        found += (each for each in page if each.status is not None and each.status.tried)
        before = page[-1].number
    return found[:_RECENT]


def _lessons(tx: Transaction, run_id: int) -> list[Lesson]:
    """All lessons, oldest first."""
    found: list[Lesson] = []
    while page := list_lessons(tx, run_id, before=found[-1].id if found else None, limit=_LESSON_PAGE):
        found += page
    return found[::-1]


def _head(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield f"|{'|'.join('-' * (len(name) + 2) for name in names)}|\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(flat(cell).replace('|', _BAR) for cell in cells)} |\n"


def _clipped(cells: Mapping[str, str], limit: int) -> str:
    text = cells["hypothesis"]
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


_UNFINISHED = ".{name}.unfinished"


class Unfinished:
    """A directory in which files are written until they are complete."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[TextIO]:
        """A new file, on disk when the block ends."""
        with (self.path / name).open("w", encoding="utf-8", errors="replace", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def unfinished(directory: Path, names: Sequence[str], *, overwrite: bool) -> Iterator[Unfinished]:
    """A directory beside `directory` that takes its place when the block ends well.

    One that a dead process left is used again. With `overwrite`, the files called `names` of a directory that is not
    empty are replaced or, when they were not written, removed; whatever else is in it stays.
    """
    place = directory.resolve()
    _check(place, overwrite=overwrite)
    with _explained(place):
        path = place.with_name(_UNFINISHED.format(name=place.name))
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not try_lock(descriptor):
                raise Conflict(f"another export to {place} is running", hint="wait until it has ended")
            _clear(path)
            try:
                yield Unfinished(path)
                os.fsync(descriptor)
                _put(path, place, names, overwrite=overwrite)
            finally:
                _clear(path)
                with contextlib.suppress(FileNotFoundError):
                    path.rmdir()
        finally:
            os.close(descriptor)


def _check(place: Path, *, overwrite: bool) -> None:
    if place.exists() and not place.is_dir():
        raise Misuse(f"{place} is not a directory", hint="name a directory that is new or empty")
    if not place.name:
        raise Misuse(f"{place} cannot be replaced", hint="name a directory that is new or empty")
    if not overwrite and place.is_dir() and any(place.iterdir()):
        raise Conflict(
            f"{place} is not empty", hint="name a directory that is new or empty, or allow overwriting"
        )


def _put(path: Path, place: Path, names: Sequence[str], *, overwrite: bool) -> None:
    if not overwrite or not place.is_dir() or not any(place.iterdir()):
        path.rename(place)
        return
    for name in names:
        if (path / name).exists():
            (path / name).replace(place / name)
        else:
            (place / name).unlink(missing_ok=True)


def _clear(path: Path) -> None:
    """Remove the files that were begun. Nobody but an export writes in a directory of this name."""
    with contextlib.suppress(FileNotFoundError):
        for file in path.iterdir():
            file.unlink()


@contextlib.contextmanager
def _explained(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Misuse(
            f"{place} cannot be written: {error.strerror or error}",
            hint="name a directory that is new or empty, on a disk with room",
        ) from error


_PAGE = 100
_FILES = (RESULTS, TREE, BEST, LEADERBOARD, KNOWLEDGE)


def export_run(
    ledger: Ledger, run_id: int, directory: Path, *, task: TaskAdapter | None = None, overwrite: bool = False
) -> int:
    """Write results.tsv, tree.tsv, best.json, LEADERBOARD.md and KNOWLEDGE.md; how many trials there are in them.

    `task` tells the columns and the label of a run of Ratchet's own. Trials in flight are left out; without a best
    there is no best.json. The files appear together, or one by one with `overwrite` in a directory that is not empty.
    Raises `NotFound`, `Conflict` when the directory is not empty, `Misuse` when it cannot be written.
    """
    with ledger.read() as tx:
        run, standing = get_run(tx, run_id), get_standing(tx, run_id)
        form = format_of(run, standing, find_trial(tx, run_id, 0), task)
        with unfinished(directory, _FILES, overwrite=overwrite) as files:
            count = _write_results(tx, run_id, form, files)
            outline = ExportOutline(tx, run_id)
            _write(files, TREE, _tree(form, outline))
            best = None
            if standing.best is not None:
                recorded = run.spec.get("imported", {}).get("best") if isinstance(run.spec, dict) else None
                best = best_of(form, get_trial(tx, run_id, standing.best), recorded)
                _write(files, BEST, [best.json()])
            _write(files, LEADERBOARD, leaderboard(tx, run_id, form, best))
            _write(files, KNOWLEDGE, knowledge(tx, run_id, form, best, outline))
    return count


def _write_results(tx: Transaction, run_id: int, form: Format, files: Unfinished) -> int:
    count = 0
    with files.open(RESULTS) as file:
        file.write(written(form.layout.columns))
        for trial in _ended(tx, run_id):
            cells = form.cells(trial)
            file.write(written(cells[name] for name in form.layout.columns))
            count += 1
    return count


def _ended(tx: Transaction, run_id: int) -> Iterator[Trial]:
    after = -1
    while page := trials_after(tx, run_id, after, limit=_PAGE):
        yield from (trial for trial in page if trial.status is not None)
        after = page[-1].number


def _tree(form: Format, outline: ExportOutline) -> Iterator[str]:
    score = form.layout.score
    yield f"exp_id\tparent_exp\tdepth\tpath\tspecialist\tstatus\t{score}\tdelta_vs_best\thypothesis\n"
    for trial, way in outline.preorder():
        cells = form.cells(trial)
        place = trial.exp_id, cells["parent_exp"], str(len(way) - 1), "/".join(way)
        result = str(trial.status), cells[score], cells["delta_vs_best"], cells["hypothesis"]
        yield "\t".join(map(flat, (*place, cells["specialist"], *result))) + "\n"


def _write(files: Unfinished, name: str, parts: Iterable[str]) -> None:
    with files.open(name) as file:
        file.writelines(parts)
