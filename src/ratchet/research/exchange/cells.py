"""A trial of the ledger as the cells of a row: those it was imported with, or those that tell what it came to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import TrialStatus
from ratchet.ledger import Run
from ratchet.ledger.research import Standing
from ratchet.ledger.trial_rows import Trial
from ratchet.research.adapter import FIXED_COLUMNS, Specialist, TaskAdapter
from ratchet.research.exchange.layout import Layout
from ratchet.research.exchange.numbers import id_text, score_text, time_text
from ratchet.research.keeping._strict import delta_text
from ratchet.research.views.row import measured

_COLUMN = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Format:
    """How a run is written: its columns, the short name of its score, and its task where that is known."""

    layout: Layout
    label: str
    task: TaskAdapter | None = None

    def cells(self, trial: Trial) -> Mapping[str, str]:
        """The cells by the names of their columns."""
        if isinstance(trial.imported, dict):
            return dict.fromkeys(self.layout.columns, "") | dict(trial.imported["row"])
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
            "notes": _notes(trial),
        }
        numbers = {name: score_text(measured(trial, name)) for name in self.layout.measured}
        return {**numbers, **own, self.layout.score: score_text(trial.score)}

    def _job_name(self, trial: Trial) -> str:
        if self.task is None or trial.status is TrialStatus.BASELINE:
            return ""
        specialist = Specialist(name=trial.specialist, domain=trial.domain)
        return self.task.job_name(specialist, trial.number)


def format_of(run: Run, standing: Standing, first: Trial | None, task: TaskAdapter | None) -> Format:
    """The format of a run. Without its task, the columns are what was measured at the baseline, its trial `first`."""
    origin = run.spec.get("imported") if isinstance(run.spec, dict) else None
    if origin is not None:
        return Format(Layout(tuple(origin["columns"]), origin["score_field"]), origin["label"])
    if task is None:
        nameless = TaskAdapter(
            name=standing.task,
            root=Path(),
            score_field=standing.score_field,
            columns=_measured_names(first, standing.score_field),
        )
        return Format(Layout(nameless.tsv_columns, standing.score_field), standing.score_field)
    return Format(Layout(task.tsv_columns, task.score_field), task.label, task)


def _measured_names(first: Trial | None, score: str) -> tuple[str, ...]:
    found = first.measurements if first is not None and isinstance(first.measurements, dict) else {}
    means = found.get("means")
    names = means if isinstance(means, dict) else {}
    return tuple(sorted(name for name in names if _is_column(name) and name != score))


def _is_column(name: str) -> bool:
    """Whether an evaluator's own word may be the name of a column."""
    return _COLUMN.fullmatch(name) is not None and name not in FIXED_COLUMNS


def _notes(trial: Trial) -> str:
    """What the specialist noted, and what was said about how it ended."""
    return " | ".join(text for text in (trial.notes, trial.reason) if text)
