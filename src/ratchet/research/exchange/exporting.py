"""Writing a research run as a state directory of the original, whatever its length: rows go by one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import trials_after
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import find_trial, get_trial
from ratchet.research.adapter import TaskAdapter
from ratchet.research.exchange.cells import Format, format_of
from ratchet.research.exchange.files import BEST, KNOWLEDGE, LEADERBOARD, RESULTS, TREE
from ratchet.research.exchange.outline import Outline
from ratchet.research.exchange.pages import best_of, knowledge, leaderboard
from ratchet.research.exchange.place import Unfinished, unfinished
from ratchet.research.exchange.tsv import flat, written

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
            outline = Outline(tx, run_id)
            _write(files, TREE, _tree(form, outline))
            best = None
            if standing.best is not None:
                told = run.spec.get("imported", {}).get("best") if isinstance(run.spec, dict) else None
                best = best_of(form, get_trial(tx, run_id, standing.best), told)
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


def _tree(form: Format, outline: Outline) -> Iterator[str]:
    score = form.layout.score
    yield f"exp_id\tparent_exp\tdepth\tpath\tspecialist\tstatus\t{score}\tdelta_vs_best\thypothesis\n"
    for trial, way in outline.preorder():
        cells = form.cells(trial)
        columns = (
            trial.exp_id,
            cells.get("parent_exp", ""),
            str(len(way) - 1),
            "/".join(way),
            cells.get("specialist", ""),
            str(trial.status),
            cells[score],
            cells.get("delta_vs_best", ""),
            cells.get("hypothesis", ""),
        )
        yield "\t".join(map(flat, columns)) + "\n"


def _write(files: Unfinished, name: str, parts: Iterable[str]) -> None:
    with files.open(name) as file:
        file.writelines(parts)
