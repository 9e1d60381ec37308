"""Many steps of one run begun or ended in one transaction, at a fraction of the cost of one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import AttemptId, Outcome, StateChanged, StepStatus
from ratchet.ledger.runs import Step, create_step_rows
from ratchet.ledger.statuses import StepChange, change_steps
from ratchet.ledger.tables import attempts, holds
from ratchet.ledger.transaction import Transaction

_LAST_ATTEMPTS = (
    sa.select(attempts.c.step_id, sa.func.max(attempts.c.number).label("number"))
    .where(attempts.c.step_id.in_(sa.bindparam("steps", expanding=True)))
    .group_by(attempts.c.step_id)
)
_LEFT_OPEN = sa.select(attempts.c.id).where(
    attempts.c.step_id.in_(sa.bindparam("steps", expanding=True)), attempts.c.ended_at.is_(None)
)
_INSERT = sa.insert(attempts).returning(attempts.c.id, sort_by_parameter_order=True)
_CLOSE = sa.update(attempts).where(attempts.c.id == sa.bindparam("attempt"), attempts.c.ended_at.is_(None))
_RELEASE = sa.delete(holds).where(holds.c.attempt_id == sa.bindparam("attempt"))


@dataclass(frozen=True, slots=True)
class NewStep:
    name: str
    spec: Any


@dataclass(frozen=True, slots=True)
class Beginning:
    """A step that is about to be tried. Its status must be the one it has now."""

    step: Step
    data: Any = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a try at a running step ended. If `to` is `None`, only the try has: the next one follows."""

    step_id: int
    run_id: int
    name: str
    attempt_id: int
    outcome: Outcome
    reason: str
    to: StepStatus | None
    result: Any = None
    data: Any = None


def add_steps(tx: Transaction, run_id: int, steps: Sequence[NewStep]) -> list[Step]:
    """Pending steps after those the run has."""
    return create_step_rows(tx, run_id, [(step.name, step.spec) for step in steps])


def begin_steps(
    tx: Transaction, beginnings: Sequence[Beginning], *, process_id: str | None
) -> list[AttemptId]:
    """Let steps run and open an attempt at each; an attempt that a dead process left open is closed as an error."""
    if not beginnings:
        return []
    known = [each.step.id for each in beginnings if each.step.status is not StepStatus.PENDING]
    numbers: dict[int, int] = {}
    if known:
        _close_left_open(tx, known)
        found = tx.connection.execute(_LAST_ATTEMPTS, {"steps": known})
        numbers = {row.step_id: row.number for row in found}
    change_steps(
        tx,
        [
            StepChange(
                each.step.id,
                each.step.run_id,
                each.step.name,
                each.step.status,
                StepStatus.RUNNING,
                data=each.data,
            )
            for each in beginnings
            if each.step.status is not StepStatus.RUNNING
        ],
    )
    rows: list[dict[str, Any]] = [
        {
            "run_id": each.step.run_id,
            "step_id": each.step.id,
            "number": numbers.get(each.step.id, 0) + 1,
            "process_id": process_id,
            "simulated": False,
            "started_at": tx.now,
        }
        for each in beginnings
    ]
    opened = [AttemptId(number) for number in tx.connection.execute(_INSERT, rows).scalars()]
    for row, attempt_id in zip(rows, opened, strict=True):
        tx.event(
            "attempt.started",
            run_id=row["run_id"],
            step_id=row["step_id"],
            attempt_id=attempt_id,
            data={"number": row["number"], "simulated": False},
        )
    return opened


def end_attempts(tx: Transaction, endings: Sequence[Ending]) -> None:
    """Close attempts, and change the steps of those that were the last ones."""
    if not endings:
        return
    rows = [
        {
            "attempt": each.attempt_id,
            "outcome": str(each.outcome),
            "reason": each.reason,
            "ended_at": tx.now,
        }
        for each in endings
    ]
    if tx.connection.execute(_CLOSE, rows).rowcount != len(rows):
        raise StateChanged("attempt", rows[0]["attempt"], ("open",), "closed")
    tx.connection.execute(_RELEASE, [{"attempt": each.attempt_id} for each in endings])
    for each in endings:
        tx.event(
            f"attempt.{each.outcome}",
            run_id=each.run_id,
            step_id=each.step_id,
            attempt_id=each.attempt_id,
            message=each.reason,
        )
    change_steps(
        tx,
        [
            StepChange(
                each.step_id,
                each.run_id,
                each.name,
                StepStatus.RUNNING,
                each.to,
                None if each.to is StepStatus.COMPLETED else each.reason,
                each.result,
                each.attempt_id,
                each.data,
            )
            for each in endings
            if each.to is not None
        ],
    )


def _close_left_open(tx: Transaction, steps: Sequence[int]) -> None:
    for attempt_id in tx.connection.execute(_LEFT_OPEN, {"steps": list(steps)}).scalars().all():
        interrupted = {
            "attempt": attempt_id,
            "outcome": str(Outcome.ERROR),
            "reason": "interrupted: its process ended",
            "ended_at": tx.now,
        }
        tx.connection.execute(_CLOSE, interrupted)
        tx.connection.execute(_RELEASE, {"attempt": attempt_id})
