"""best.json, LEADERBOARD.md and KNOWLEDGE.md of a run, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.ledger import Transaction
from ratchet.ledger.lessons import Lesson, list_lessons
from ratchet.ledger.trial_pages import ancestors, latest_trials
from ratchet.ledger.trial_rows import Trial
from ratchet.research.exchange.cells import Format
from ratchet.research.exchange.files import TREE
from ratchet.research.exchange.insights import insight_lines
from ratchet.research.exchange.numbers import read_number
from ratchet.research.exchange.outline import Outline
from ratchet.research.exchange.tsv import flat
from ratchet.research.views._leaderboard import kept_best_first

_TOP = 20
_RECENT = 30
_NOTHING = "—"
# Looks like the bar that ends a cell, and ends none.
_BAR = "\N{DIVIDES}"
_PAGE = 200
# A line of descent longer than this is read in tree.tsv.
_LONGEST_LINE = 1000


@dataclass(frozen=True, slots=True)
class Best:
    """The best trial, and what best.json says of it."""

    trial: Trial
    record: Mapping[str, Any]

    def json(self) -> str:
        return json.dumps(self.record, indent=2, ensure_ascii=False) + "\n"


def best_of(form: Format, trial: Trial, told: Mapping[str, Any] | None) -> Best:
    """`told` is what the best.json said that the run was imported with: it may know the score more exactly."""
    cells = form.cells(trial)
    score = read_number(cells[form.layout.score]) if trial.imported else trial.score
    record = {
        "exp_id": trial.exp_id,
        "specialist": cells.get("specialist", ""),
        "domain": cells.get("domain", ""),
        "hypothesis": cells.get("hypothesis", ""),
        form.layout.score: score,
        "delta_vs_prev": cells.get("delta_vs_best", ""),
        "timestamp": cells.get("timestamp", ""),
        "snapshot_path": cells.get("snapshot_path", ""),
    }
    return Best(trial, record if told is None else told)


def leaderboard(tx: Transaction, run_id: int, form: Format, best: Best | None) -> Iterator[str]:
    score = form.layout.score
    yield "# Leaderboard\n*Written by Ratchet from its ledger; changes made here are lost.*\n\n## Current Best\n"
    if best is None:
        yield "Nothing yet.\n"
    else:
        cells = form.cells(best.trial)
        yield f"- **exp_id**: {best.trial.exp_id}\n"
        yield f"- **{score}**: {json.dumps(best.record.get(score))}\n"
        yield f"- **specialist**: {flat(cells.get('specialist', ''))}\n"
        yield f"- **hypothesis**: {flat(cells.get('hypothesis', ''))[:120]}\n"
        yield f"- **snapshot**: `{flat(cells.get('snapshot_path', ''))}`\n"
    yield f"\n## Top {_TOP} Kept Trials\n\n"
    yield from _head("exp", score, "Δ", "specialist", "hypothesis")
    for trial in kept_best_first(tx, run_id, limit=_TOP):
        cells = form.cells(trial)
        yield _line(
            trial.exp_id,
            cells[score],
            cells.get("delta_vs_best", ""),
            cells.get("specialist", ""),
            _clipped(cells, 100),
        )


def knowledge(
    tx: Transaction, run_id: int, form: Format, best: Best | None, outline: Outline
) -> Iterator[str]:
    yield "# Research Knowledge Base\n*Written by Ratchet from its ledger; lessons are at the end.*\n\n"
    yield from _tree_notes(form)
    if best is not None:
        yield from _lineage(tx, run_id, form, best, outline)
    yield f"## Recent Activity (last {_RECENT})\n\n"
    yield from _head("exp", "specialist", "status", form.layout.score, "hypothesis")
    for trial in _recent(tx, run_id):
        cells = form.cells(trial)
        yield _line(
            trial.exp_id,
            cells.get("specialist", ""),
            str(trial.status),
            cells[form.layout.score] or _NOTHING,
            _clipped(cells, 80),
        )
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


def _lineage(tx: Transaction, run_id: int, form: Format, best: Best, outline: Outline) -> Iterator[str]:
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
    delta = cells.get("delta_vs_best", "")
    facts = [
        flat(cells.get("specialist", "")),
        str(trial.status),
        f"{form.label}={cells[form.layout.score] or _NOTHING}",
        *([f"Δ={flat(delta)}"] if delta else []),
    ]
    return f"exp_{trial.exp_id} [{', '.join(facts)}] {flat(cells.get('hypothesis', ''))[:100]}"


def _recent(tx: Transaction, run_id: int) -> list[Trial]:
    """The last trials that ended and tell something, newest first."""
    found: list[Trial] = []
    before: int | None = None
    while len(found) < _RECENT and (page := latest_trials(tx, run_id, before=before, limit=_PAGE)):
        found += (each for each in page if each.status is not None and each.status.tried)
        before = page[-1].number
    return found[:_RECENT]


def _lessons(tx: Transaction, run_id: int) -> list[Lesson]:
    """All lessons, oldest first."""
    found: list[Lesson] = []
    while page := list_lessons(tx, run_id, before=found[-1].id if found else None, limit=_PAGE):
        found += page
    return found[::-1]


def _head(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield f"|{'|'.join('-' * (len(name) + 2) for name in names)}|\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(flat(cell).replace('|', _BAR) for cell in cells)} |\n"


def _clipped(cells: Mapping[str, str], limit: int) -> str:
    text = cells.get("hypothesis", "")
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
