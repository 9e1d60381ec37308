"""Runs, their steps, and the attempts at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import (
    AttemptId,
    Conflict,
    NotFound,
    Outcome,
    ProjectId,
    RunId,
    RunStatus,
    StepId,
    StepStatus,
    Verdict,
)
from ratchet.ledger._columns import Number
from ratchet.ledger.tables import attempts, holds, runs, steps
from ratchet.ledger.transaction import Transaction

# Built once: they run for every step, and building a statement takes longer than running it.
_STEP_BY_NAME = sa.select(steps).where(
    steps.c.run_id == sa.bindparam("run"), steps.c.name == sa.bindparam("wanted")
)
_OF_RUN = sa.select(runs).where(runs.c.id == sa.bindparam("wanted"))
_RUN_BY_ID = _OF_RUN
_LOCK_RUN = _OF_RUN.with_for_update(key_share=True)
_STATUS_BY_ID = sa.select(runs.c.status).where(runs.c.id == sa.bindparam("wanted"))
_STEP_BY_ID = sa.select(steps).where(steps.c.id == sa.bindparam("wanted"))
_EARLIER = steps.alias()
_NEXT_POSITION = (
    sa.select(_EARLIER.c.position + 1)
    .where(_EARLIER.c.run_id == sa.bindparam("run"))
    .order_by(_EARLIER.c.position.desc())
    .limit(1)
    .scalar_subquery()
)
_INSERT_STEP = (
    sa.insert(steps)
    .values(position=sa.func.coalesce(_NEXT_POSITION, 0))
    .returning(steps.c.id, steps.c.position)
)
_LAST_ATTEMPT = (
    sa.select(attempts.c.id, attempts.c.number, attempts.c.ended_at)
    .where(attempts.c.step_id == sa.bindparam("step"))
    .order_by(attempts.c.number.desc())
    .limit(1)
)
_BEFORE = attempts.alias()
# In words of SQL: SQLAlchemy does not relate a select to the row that an insert returns.
_LEFT_OPEN = sa.literal_column(
    "(SELECT before.id FROM attempts AS before WHERE before.step_id = attempts.step_id"
    " AND before.number = attempts.number - 1 AND before.ended_at IS NULL)",
    Number,
).label("left_open")
_INSERT_ATTEMPT = (
    sa.insert(attempts)
    .values(
        number=sa.select(sa.func.coalesce(sa.func.max(_BEFORE.c.number), 0) + 1)
        .where(_BEFORE.c.step_id == sa.bindparam("step"))
        .scalar_subquery()
    )
    .returning(
        attempts.c.id,
        attempts.c.number,
        _LEFT_OPEN,
    )
)
# Whatever was set aside for an attempt is free again once it has ended.
_RELEASE = sa.delete(holds).where(holds.c.attempt_id == sa.bindparam("attempt"))
_CLOSE_ATTEMPT = (
    sa.update(attempts)
    .where(attempts.c.id == sa.bindparam("attempt"), attempts.c.ended_at.is_(None))
    .returning(attempts.c.run_id, attempts.c.step_id)
)


@dataclass(frozen=True, slots=True)
class Run:
    id: RunId
    kind: str
    name: str
    project_id: ProjectId | None
    status: RunStatus
    reason: str | None
    spec: Any
    result: Any
    simulated: bool
    used_recording: bool
    created_at: int
    updated_at: int
    ended_at: int | None


@dataclass(frozen=True, slots=True)
class Step:
    id: StepId
    run_id: RunId
    position: int
    name: str
    status: StepStatus
    reason: str | None
    spec: Any
    result: Any
    created_at: int
    updated_at: int
    ended_at: int | None


@dataclass(frozen=True, slots=True)
class Attempt:
    id: AttemptId
    run_id: RunId
    step_id: StepId
    number: int
    process_id: str | None
    simulated: bool
    outcome: Outcome | None
    reason: str | None
    verdict: Any
    started_at: int
    ended_at: int | None


def create_run(
    tx: Transaction,
    kind: str,
    name: str,
    *,
    spec: Any = None,
    project_id: int | None = None,
    simulated: bool = False,
) -> RunId:
    """A new pending run. `simulated` says that it may be completed on recorded sessions."""
    number = tx.connection.execute(
        sa.insert(runs)
        .values(
            kind=kind,
            name=name,
            project_id=project_id,
            status=str(RunStatus.PENDING),
            spec={} if spec is None else spec,
            simulated=simulated,
            used_recording=False,
            created_at=tx.now,
            updated_at=tx.now,
        )
        .returning(runs.c.id)
    ).scalar_one()
    data = {"kind": kind, "name": name, "simulated": simulated}
    tx.event("run.created", run_id=number, project_id=project_id, message=name, data=data)
    return RunId(number)


def create_steps(
    tx: Transaction, run_id: int, named: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[StepId]:
    """Add pending steps, given as (name, spec), after those the run has. Raises `Conflict` when a name is taken."""
    return [create_step_row(tx, run_id, name, spec).id for name, spec in named]


def create_step_row(tx: Transaction, run_id: int, name: str, spec: Mapping[str, Any]) -> Step:
    """A pending step behind those that the run has. Raises `Conflict` if it has one of that name."""
    row: dict[str, Any] = {
        "run_id": run_id,
        "name": name,
        "status": str(StepStatus.PENDING),
        "spec": dict(spec),
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    try:
        number, position = tx.connection.execute(_INSERT_STEP, {**row, "run": run_id}).one()
    except exc.IntegrityError as error:
        raise Conflict(f"run {run_id} does not exist, or has a step {name} already") from error
    tx.event("step.created", run_id=run_id, step_id=number, message=name)
    return Step(
        **{**row, "id": number, "position": position, "status": StepStatus.PENDING},
        reason=None,
        result=None,
        ended_at=None,
    )


def find_or_create_step(
    tx: Transaction, run_id: int, name: str, spec: Mapping[str, Any]
) -> tuple[Step, bool]:
    """The step `name` of a run, made now if the run has none of that name, and whether it is new."""
    step = find_step(tx, run_id, name)
    if step is not None:
        return step, False
    return create_step_row(tx, run_id, name, spec), True


def open_attempt(
    tx: Transaction,
    step: Step,
    *,
    process_id: str | None = None,
    simulated: bool = False,
) -> AttemptId:
    """Begin the next attempt at a step; one that a dead process left open is closed as an error."""
    attempt = {
        "run_id": step.run_id,
        "step_id": step.id,
        "process_id": process_id,
        "simulated": simulated,
        "started_at": tx.now,
    }
    [(attempt_id, number, left_open)] = tx.connection.execute(
        _INSERT_ATTEMPT, {**attempt, "step": step.id}
    ).all()
    if left_open is not None:
        interrupted = {
            "outcome": str(Outcome.ERROR),
            "reason": "interrupted: its process ended",
            "ended_at": tx.now,
        }
        tx.connection.execute(_CLOSE_ATTEMPT, {"attempt": left_open, **interrupted})
        tx.connection.execute(_RELEASE, {"attempt": left_open})
    if simulated:
        mark_run_simulated(tx, step.run_id)
    tx.event(
        "attempt.started",
        run_id=step.run_id,
        step_id=step.id,
        attempt_id=attempt_id,
        data={"number": number, "simulated": simulated},
    )
    return AttemptId(attempt_id)


def unended_attempt(tx: Transaction, step_id: int) -> AttemptId | None:
    """The attempt at a step that nobody has closed; its process may be gone."""
    last = tx.connection.execute(_LAST_ATTEMPT, {"step": step_id}).first()
    if last is None:
        return None
    attempt_id, _, ended_at = last
    return None if ended_at is not None else AttemptId(attempt_id)


def mark_simulated(tx: Transaction, attempt_id: int) -> None:
    """Say that an attempt rests on a recording, and so does its run."""
    mark = sa.update(attempts).where(attempts.c.id == attempt_id).values(simulated=True)
    mark_run_simulated(tx, tx.connection.execute(mark.returning(attempts.c.run_id)).scalar_one())


def mark_run_simulated(tx: Transaction, run_id: int) -> None:
    """Say that a run rests on a recording."""
    tx.connection.execute(sa.update(runs).where(runs.c.id == run_id).values(used_recording=True))


def close_attempt(
    tx: Transaction,
    attempt_id: int,
    outcome: Outcome,
    reason: str,
    verdict: Verdict | None = None,
) -> None:
    """Record how an attempt ended. Raises `Conflict` when it has ended already."""
    ending = {
        "outcome": str(outcome),
        "reason": reason,
        "verdict": None if verdict is None else asdict(verdict),
        "ended_at": tx.now,
    }
    closed = tx.connection.execute(_CLOSE_ATTEMPT, {"attempt": attempt_id, **ending}).first()
    if closed is None:
        raise Conflict(f"attempt {attempt_id} does not exist or has ended already")
    run_id, step_id = closed
    tx.connection.execute(_RELEASE, {"attempt": attempt_id})
    tx.event(
        f"attempt.{outcome}",
        run_id=run_id,
        step_id=step_id,
        attempt_id=attempt_id,
        message=reason,
    )


def get_run(tx: Transaction, run_id: int) -> Run:
    row = tx.connection.execute(_RUN_BY_ID, {"wanted": run_id}).mappings().first()
    if row is None:
        raise NotFound("run", run_id)
    return _run(row)


def lock_run(tx: Transaction, run_id: int) -> Run:
    """The run, which nobody else changes until the transaction ends."""
    row = tx.connection.execute(_LOCK_RUN, {"wanted": run_id}).mappings().first()
    if row is None:
        raise NotFound("run", run_id)
    return _run(row)


def status_of_run(tx: Transaction, run_id: int) -> RunStatus:
    """Its status alone: what a run was asked to do may be long."""
    status = tx.connection.execute(_STATUS_BY_ID, {"wanted": run_id}).scalar()
    if status is None:
        raise NotFound("run", run_id)
    return RunStatus(status)


def list_runs(
    tx: Transaction,
    *,
    kind: str | None = None,
    name: str | None = None,
    status: RunStatus | None = None,
    project_id: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Run]:
    """Runs, newest first, a page at a time: pass the last number as `before` for the next page."""
    wanted = {"kind": kind, "name": name, "status": status and str(status), "project_id": project_id}
    query = sa.select(runs).where(
        *(runs.c[column] == value for column, value in wanted.items() if value is not None)
    )
    if before is not None:
        query = query.where(runs.c.id < before)
    return [
        _run(row) for row in tx.connection.execute(query.order_by(runs.c.id.desc()).limit(limit)).mappings()
    ]


def get_step(tx: Transaction, step_id: int) -> Step:
    row = tx.connection.execute(_STEP_BY_ID, {"wanted": step_id}).mappings().first()
    if row is None:
        raise NotFound("step", step_id)
    return _step(row)


def find_step(tx: Transaction, run_id: int, name: str) -> Step | None:
    row = tx.connection.execute(_STEP_BY_NAME, {"run": run_id, "wanted": name}).mappings().first()
    return None if row is None else _step(row)


def list_steps(tx: Transaction, run_id: int) -> list[Step]:
    """The steps of a run in order."""
    query = sa.select(steps).where(steps.c.run_id == run_id).order_by(steps.c.position, steps.c.id)
    return [_step(row) for row in tx.connection.execute(query).mappings()]


def latest_steps(tx: Transaction, run_id: int, *, before: int | None = None, limit: int = 50) -> list[Step]:
    """The last steps of a run, last first, before the step numbered `before`."""
    query = sa.select(steps).where(steps.c.run_id == run_id)
    if before is not None:
        place = sa.select(steps.c.position, steps.c.id).where(steps.c.id == before).scalar_subquery()
        query = query.where(sa.tuple_(steps.c.position, steps.c.id) < place)
    query = query.order_by(steps.c.position.desc(), steps.c.id.desc()).limit(limit)
    return [_step(row) for row in tx.connection.execute(query).mappings()]


def get_attempt(tx: Transaction, attempt_id: int) -> Attempt:
    row = tx.connection.execute(sa.select(attempts).where(attempts.c.id == attempt_id)).mappings().first()
    if row is None:
        raise NotFound("attempt", attempt_id)
    return _attempt(row)


def list_attempts(tx: Transaction, step_id: int) -> list[Attempt]:
    query = sa.select(attempts).where(attempts.c.step_id == step_id).order_by(attempts.c.number)
    return [_attempt(row) for row in tx.connection.execute(query).mappings()]


def latest_attempts(
    tx: Transaction, step_id: int, *, before: int | None = None, limit: int = 50
) -> list[Attempt]:
    """The last attempts at a step, last first, before its attempt number `before`."""
    query = sa.select(attempts).where(attempts.c.step_id == step_id)
    if before is not None:
        query = query.where(attempts.c.number < before)
    query = query.order_by(attempts.c.number.desc()).limit(limit)
    return [_attempt(row) for row in tx.connection.execute(query).mappings()]


def newest_attempts(tx: Transaction, run_id: int) -> list[Attempt]:
    """The last attempt at each step of a run that was tried, in the order of the steps.

    Its number is how often the step was tried.
    """
    others = attempts.alias()
    newest = sa.select(sa.func.max(others.c.number)).where(others.c.step_id == steps.c.id)
    query = (
        sa.select(attempts)
        .join_from(steps, attempts, attempts.c.step_id == steps.c.id)
        .where(steps.c.run_id == run_id, attempts.c.number == newest.correlate(steps).scalar_subquery())
        .order_by(steps.c.position, steps.c.id)
    )
    return [_attempt(row) for row in tx.connection.execute(query).mappings()]


def count_open_runs(tx: Transaction) -> dict[RunStatus, int]:
    """How many runs there are in each status that is not final."""
    query = (
        sa.select(runs.c.status, sa.func.count())
        .where(runs.c.status.in_([str(status) for status in RunStatus if not status.final]))
        .group_by(runs.c.status)
    )
    return {RunStatus(status): number for status, number in tx.connection.execute(query)}


def _run(row: sa.RowMapping) -> Run:
    return Run(**{**row, "status": RunStatus(row["status"])})


def _step(row: sa.RowMapping) -> Step:
    return Step(**{**row, "status": StepStatus(row["status"])})


def _attempt(row: sa.RowMapping) -> Attempt:
    return Attempt(**{**row, "outcome": row["outcome"] and Outcome(row["outcome"])})
