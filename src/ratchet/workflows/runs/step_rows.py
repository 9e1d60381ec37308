"""The rows of the steps of a run: what happened to each, written to the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.flowkit.execution import Result, StepError
from ratchet.kernel import Outcome, StepStatus
from ratchet.ledger import ArtifactStore, Step, Transaction, change_step
from ratchet.ledger.runs import close_attempt, create_step_row, open_attempt
from ratchet.workflows.runs.results import keep_value


@dataclass(frozen=True, slots=True)
class Began:
    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Retried:
    """A try has failed and another follows."""

    name: str
    error: StepError
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Completed:
    name: str
    result: Result


@dataclass(frozen=True, slots=True)
class StepFailure:
    name: str
    spec: Mapping[str, Any]
    error: StepError


@dataclass(frozen=True, slots=True)
class Skipped:
    name: str
    spec: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class StepBlocked:
    """A step that waits for a person."""

    name: str
    spec: Mapping[str, Any]
    reason: str


Entry = Began | Retried | Completed | StepFailure | Skipped | StepBlocked


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of the run as the ledger has it, and the attempt at it that is open."""

    step: Step
    attempt_id: int | None = None


@dataclass(frozen=True, slots=True)
class StepPlace:
    """Whose steps are written, by which delivery of its job."""

    run_id: int
    job_id: int
    process_id: str
    artifacts: ArtifactStore


def write_entry(tx: Transaction, place: StepPlace, row: StepRow | None, entry: Entry) -> StepRow:
    """Write what happened to a step whose row is known, or that has none yet; the row as it is then."""
    if row is None:
        assert not isinstance(entry, Retried | Completed)
        made = create_step_row(tx, place.run_id, entry.name, entry.spec)
        row = StepRow(made)
    if isinstance(entry, Began):
        return _begin(tx, place, row.step)
    if row.attempt_id is None:
        return _end_untried(tx, place, row, entry)
    return _end_attempt(tx, place, row.step, row.attempt_id, entry)


def _begin(tx: Transaction, place: StepPlace, step: Step) -> StepRow:
    begun = _changed(tx, step, StepStatus.RUNNING)
    return StepRow(begun, open_attempt(tx, begun, process_id=place.process_id))


def _end_attempt(
    tx: Transaction,
    place: StepPlace,
    step: Step,
    attempt_id: int,
    entry: Retried | Completed | StepFailure | Skipped | StepBlocked,
) -> StepRow:
    """What became of an attempt that is open."""

    def end(to: StepStatus | None, outcome: Outcome, reason: str, result: Any = None) -> StepRow:
        close_attempt(tx, attempt_id, outcome, reason)
        if to is None:
            return StepRow(step)
        why = None if to is StepStatus.COMPLETED else reason
        return StepRow(_changed(tx, step, to, why, result, attempt_id))

    match entry:
        case Completed(result=found):
            kept = keep_value(tx, place.artifacts, found.value, run_id=place.run_id, name=entry.name)
            metrics = {"metrics": dict(found.metrics), "cached": found.cached, "tries": found.tries}
            reason = "cached" if found.cached else "returned"
            return end(StepStatus.COMPLETED, Outcome.PASSED, reason, {**kept, **metrics})
        case StepFailure(error=error):
            return end(StepStatus.FAILED, Outcome.FAILED, error.reason, _failure(place, error))
        case Retried(error=error):
            retried = end(None, Outcome.FAILED, error.reason)
            tx.event(
                "step.retrying",
                run_id=place.run_id,
                step_id=step.id,
                message=error.reason,
                data={"name": entry.name, "tries": error.tries, "pause_seconds": entry.pause_seconds},
            )
            return retried
        case StepBlocked(reason=reason):
            return end(StepStatus.BLOCKED, Outcome.ERROR, reason)
        case Skipped(reason=reason):
            return end(StepStatus.CANCELLED, Outcome.ERROR, reason)


def _end_untried(tx: Transaction, place: StepPlace, row: StepRow, entry: Entry) -> StepRow:
    """What became of a step for which nothing was called: skipped, held, or failed for want of its inputs."""
    step = row.step
    match entry:
        case StepFailure(error=error):
            begun = _changed(tx, step, StepStatus.RUNNING)
            return StepRow(_changed(tx, begun, StepStatus.FAILED, error.reason, _failure(place, error)))
        case Skipped(reason=reason):
            return StepRow(_changed(tx, step, StepStatus.CANCELLED, reason))
        case StepBlocked(reason=reason):
            return StepRow(_changed(tx, step, StepStatus.BLOCKED, reason))
    return row


def _changed(
    tx: Transaction,
    step: Step,
    to: StepStatus,
    reason: str | None = None,
    result: Any = None,
    attempt_id: int | None = None,
) -> Step:
    """The step with another status; one that has it already stays as it is."""
    if step.status is to:
        return step
    change_step(tx, step.id, to, expected=(step.status,), reason=reason, result=result, attempt_id=attempt_id)
    return replace(step, status=to)


def _failure(place: StepPlace, error: Any) -> dict[str, Any]:
    """Why a step failed, and in which delivery of the run's job: a later one, after a pause, tries again."""
    return {
        "error": error.reason,
        "hint": error.hint,
        "metrics": dict(error.metrics),
        "tries": error.tries,
        "job": place.job_id,
    }
