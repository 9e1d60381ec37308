"""One trial as the views tell it: its numbers, its texts, and why it came to what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.kernel import TrialStatus, exp_id, iso
from ratchet.research.views.words import both_ends, cell, escaped, finite, json_text, number, signed

if TYPE_CHECKING:
    from ratchet.ledger.trial_rows import Trial

RUNNING = "running"
_WHY = {
    TrialStatus.BASELINE: "where the run began",
    TrialStatus.KEEP: "better than the best of then",
    TrialStatus.DISCARD: "not better than the best of then",
    TrialStatus.CRASH: "it crashed",
    TrialStatus.PREFLIGHT_CRASH: "it could not be started",
    TrialStatus.SIZE_BLOCKED: "it is too large",
    TrialStatus.TRAIN_BUDGET_OVERRUN: "it ran for too long",
    TrialStatus.EVAL_BUDGET_OVERRUN: "its evaluation took too long",
    TrialStatus.DISQUALIFIED: "the evaluator did not accept it",
    TrialStatus.INFRA_ERROR: "it could not be measured",
    TrialStatus.HARNESS_ABORT: "it was taken out afterwards",
}


def status_of(trial: Trial) -> str:
    return RUNNING if trial.status is None else str(trial.status)


def why(trial: Trial, limit: int) -> str:
    """What the judge said, or else what the status means; fit for Markdown."""
    if trial.reason and trial.reason.strip():
        return escaped(both_ends(trial.reason, limit))
    return "" if trial.status is None else _WHY[trial.status]


def brief(trial: Trial, label: str) -> str:
    """`070 [opt, keep, time=25.146400, Δ=-0.079500]`"""
    facts = [cell(trial.specialist, 40), status_of(trial), f"{cell(label, 40)}={number(trial.score)}"]
    if trial.delta is not None:
        facts.append(f"Δ={signed(trial.delta)}")
    return f"{trial.exp_id} [{', '.join(facts)}]"


def record(trial: Trial) -> dict[str, Any]:
    """A trial as JSON."""
    return {
        "exp_id": trial.exp_id,
        "parent": None if trial.parent is None else exp_id(trial.parent),
        "specialist": json_text(trial.specialist),
        "domain": json_text(trial.domain),
        "status": status_of(trial),
        "score": finite(trial.score),
        "delta_vs_best": finite(trial.delta),
        "expected_delta": json_text(trial.expected_delta),
        "hypothesis": json_text(trial.hypothesis),
        "reason": json_text(trial.reason),
        "commit": trial.commit,
        "simulated": trial.simulated,
        "wall_ms": trial.wall_ms,
        "started_at": iso(trial.started_at),
        "ended_at": None if trial.ended_at is None else iso(trial.ended_at),
    }


def measured(trial: Trial, name: str) -> float | None:
    """What the evaluator measured beside the score, by its name."""
    found = trial.measurements if isinstance(trial.measurements, dict) else {}
    means = found.get("means")
    return finite(means.get(name) if isinstance(means, dict) else None)
