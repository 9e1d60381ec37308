"""Writing what happened to many steps in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratchet.kernel import Outcome, StepStatus
from ratchet.ledger import ArtifactStore, Step, Transaction
from ratchet.ledger.statuses import StepChange, change_steps
from ratchet.ledger.step_batches import Beginning, Ending, NewStep, add_steps, begin_steps, end_attempts
from ratchet.workflows.running.entries import Began, Blocked, Completed, Entry, Failed, Retried, Skipped
from ratchet.workflows.running.values import keep_value


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of the run as the ledger has it, and the attempt at it that is open."""

    step: Step
    attempt_id: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Whose steps are written, by which delivery of its job."""

    run_id: int
    job_id: int
    process_id: str
    artifacts: ArtifactStore


def write_entries(
    tx: Transaction, place: Place, known: Mapping[str, StepRow], entries: Sequence[Entry]
) -> dict[str, StepRow]:
    """Write `entries` in their order for each step; the rows that have changed by it."""
    changed: dict[str, StepRow] = {}
    for layer in _layers(entries):
        rows = {**{each.name: known[each.name] for each in layer if each.name in known}, **changed}
        changed.update(_write_layer(tx, place, rows, layer))
    return changed


def _layers(entries: Sequence[Entry]) -> Iterable[list[Entry]]:
    """The first entry of each step, then the second of each, and so on."""
    seen: dict[str, int] = defaultdict(int)
    layers: list[list[Entry]] = []
    for entry in entries:
        number = seen[entry.name]
        seen[entry.name] += 1
        if number == len(layers):
            layers.append([])
        layers[number].append(entry)
    return layers


def _write_layer(
    tx: Transaction, place: Place, rows: Mapping[str, StepRow], layer: Sequence[Entry]
) -> dict[str, StepRow]:
    made = _make_rows(tx, place, rows, layer)
    rows = {**rows, **made}
    begun = [entry for entry in layer if isinstance(entry, Began)]
    ended = [entry for entry in layer if not isinstance(entry, Began)]
    return {
        **made,
        **_begin(tx, place, rows, begun),
        **_end_tried(tx, place, rows, [each for each in ended if rows[each.name].attempt_id is not None]),
        **_change_untried(tx, place, rows, [each for each in ended if rows[each.name].attempt_id is None]),
    }


def _begin(
    tx: Transaction, place: Place, rows: Mapping[str, StepRow], begun: Sequence[Began]
) -> dict[str, StepRow]:
    opened = begin_steps(
        tx, [Beginning(rows[entry.name].step) for entry in begun], process_id=place.process_id
    )
    return {
        entry.name: StepRow(replace(rows[entry.name].step, status=StepStatus.RUNNING), attempt_id)
        for entry, attempt_id in zip(begun, opened, strict=True)
    }


def _end_tried(
    tx: Transaction, place: Place, rows: Mapping[str, StepRow], ended: Sequence[Entry]
) -> dict[str, StepRow]:
    """What became of attempts that are open."""
    end_attempts(tx, [_ending(tx, place, rows[entry.name], entry) for entry in ended])
    changed = {}
    for entry in ended:
        step = rows[entry.name].step
        changed[entry.name] = StepRow(replace(step, status=_status_after(entry) or step.status))
        if isinstance(entry, Retried):
            tx.event(
                "step.retrying",
                run_id=place.run_id,
                step_id=step.id,
                message=entry.error.reason,
                data={"name": entry.name, "tries": entry.error.tries, "pause_seconds": entry.pause_seconds},
            )
    return changed


def _change_untried(
    tx: Transaction, place: Place, rows: Mapping[str, StepRow], ended: Sequence[Entry]
) -> dict[str, StepRow]:
    """What became of steps for which nothing was called: skipped, held, or failed for want of their inputs."""
    changes = [change for entry in ended for change in _changes(place, rows[entry.name].step, entry)]
    begun = [change for change in changes if change.to is StepStatus.RUNNING]
    change_steps(tx, begun)
    last = [change for change in changes if change.to is not StepStatus.RUNNING]
    change_steps(tx, last)
    return {change.name: StepRow(replace(rows[change.name].step, status=change.to)) for change in last}


def _make_rows(
    tx: Transaction, place: Place, rows: Mapping[str, StepRow], layer: Sequence[Entry]
) -> dict[str, StepRow]:
    new = [
        NewStep(entry.name, dict(entry.spec))
        for entry in layer
        if entry.name not in rows and not isinstance(entry, Retried | Completed)
    ]
    return {step.name: StepRow(step) for step in add_steps(tx, place.run_id, new)}


def _status_after(entry: Entry) -> StepStatus | None:
    match entry:
        case Completed():
            return StepStatus.COMPLETED
        case Failed():
            return StepStatus.FAILED
        case Blocked():
            return StepStatus.BLOCKED
        case Skipped():
            return StepStatus.CANCELLED
        case Began() | Retried():
            return None


def _ending(tx: Transaction, place: Place, row: StepRow, entry: Entry) -> Ending:
    assert row.attempt_id is not None
    outcome, reason, result = Outcome.ERROR, "", None
    match entry:
        case Completed(result=found):
            outcome, reason = Outcome.PASSED, "cached" if found.cached else "returned"
            result = {
                **keep_value(tx, place.artifacts, found.value, run_id=place.run_id, name=entry.name),
                "metrics": dict(found.metrics),
                "cached": found.cached,
                "tries": found.tries,
            }
        case Retried(error=error) | Failed(error=error):
            outcome, reason = Outcome.FAILED, error.reason
            result = _told(place, error)
        case Blocked(reason=why) | Skipped(reason=why):
            reason = why
        case Began():
            raise AssertionError("a beginning ends nothing")
    return Ending(
        row.step.id, place.run_id, entry.name, row.attempt_id, outcome, reason, _status_after(entry), result
    )


def _changes(place: Place, step: Step, entry: Entry) -> list[StepChange]:
    """The changes of a step at which no attempt is open."""

    def change(current: StepStatus, to: StepStatus, reason: str | None, result: Any = None) -> StepChange:
        return StepChange(step.id, place.run_id, step.name, current, to, reason, result)

    match entry:
        case Failed(error=error):
            begun = (
                [change(step.status, StepStatus.RUNNING, None)]
                if step.status is not StepStatus.RUNNING
                else []
            )
            return [*begun, change(StepStatus.RUNNING, StepStatus.FAILED, error.reason, _told(place, error))]
        case Skipped(reason=reason) if step.status is not StepStatus.CANCELLED:
            return [change(step.status, StepStatus.CANCELLED, reason)]
        case Blocked(reason=reason) if step.status is not StepStatus.BLOCKED:
            return [change(step.status, StepStatus.BLOCKED, reason)]
    return []


def _told(place: Place, error: Any) -> dict[str, Any]:
    """Why a step failed, and in which delivery of the run's job: a later one, after a pause, tries again."""
    return {
        "error": error.reason,
        "hint": error.hint,
        "metrics": dict(error.metrics),
        "tries": error.tries,
        "job": place.job_id,
    }
