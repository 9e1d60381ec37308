"""The one place where a status changes.

Compare-and-set plus its event in one transaction; the tables in `ratchet.kernel` say what is legal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import (
    REOPENED,
    Conflict,
    IllegalTransition,
    NotFound,
    RunStatus,
    StateChanged,
    StepStatus,
    check_transition,
)
from ratchet.ledger.questions import close_approvals
from ratchet.ledger.tables import runs, steps
from ratchet.ledger.transaction import Transaction

UNCHANGED = object()
# Built once: building a statement takes longer than running it.
_LOCK = {
    table: (sa.select(table).where(table.c.id == sa.bindparam("key")).with_for_update())
    for table in (runs, steps)
}
_CHANGE = {
    table: (
        sa.update(table)
        .where(table.c.id == sa.bindparam("key"), table.c.status == sa.bindparam("current", type_=sa.Text))
        .returning(table.c.name, *([table.c.run_id] if table is steps else []))
    )
    for table in (runs, steps)
}


def change_run(
    tx: Transaction,
    run_id: int,
    to: RunStatus,
    *,
    expected: Iterable[RunStatus] | None = None,
    reason: str | None = None,
    result: Any = UNCHANGED,
    data: Any = None,
) -> RunStatus:
    """Change a run's status, with its result if there is one, and return the status it had.

    Raises `NotFound`, `IllegalTransition` when the table forbids it, `StateChanged` when the run is not in one of the
    `expected` statuses.
    """
    row = _locked(tx, runs, "run", run_id)
    current = RunStatus(row["status"])
    _compare(expected, "run", run_id, current)
    check_transition("run", run_id, current, to)
    if to is RunStatus.COMPLETED and row["used_recording"] and not row["simulated"]:
        raise Conflict(
            f"run {run_id} used a recorded session but was not started as a simulation, so it cannot be completed",
            hint="run it again with a live engine, or start it as a simulation",
        )
    if _try_set(tx, runs, "run", run_id, current, to, reason, result) is None:
        raise StateChanged("run", run_id, (str(current),), "something else")
    if to.final:
        close_approvals(
            tx, run_id, f"the run has {to}" if to is not RunStatus.CANCELLED else "the run was cancelled"
        )
    tx.event(
        f"run.{to}",
        run_id=run_id,
        project_id=row["project_id"],
        message=reason,
        data={"from": current, "to": to, **(data or {})},
    )
    return current


def change_step(
    tx: Transaction,
    step_id: int,
    to: StepStatus,
    *,
    expected: Iterable[StepStatus] | None = None,
    reason: str | None = None,
    result: Any = UNCHANGED,
    attempt_id: int | None = None,
    data: Any = None,
) -> StepStatus:
    """Change a step's status as `change_run` does a run's. With one `expected` status nothing is read first."""
    wanted = None if expected is None else tuple(expected)
    if wanted is not None and len(wanted) == 1:
        [current] = wanted
    else:
        current = StepStatus(_locked(tx, steps, "step", step_id)["status"])
        _compare(wanted, "step", step_id, current)
    check_transition("step", step_id, current, to)
    row = _try_set(tx, steps, "step", step_id, current, to, reason, result)
    if row is None:
        found = _locked(tx, steps, "step", step_id)["status"]
        raise StateChanged("step", step_id, (str(current),), found)
    tx.event(
        f"step.{to}",
        run_id=row["run_id"],
        step_id=step_id,
        attempt_id=attempt_id,
        message=reason,
        data={"from": current, "to": to, "name": row["name"], **(data or {})},
    )
    return current


def reopen_step(tx: Transaction, step_id: int, *, reason: str, data: Any = None) -> bool:
    """Queue a step again, also one that is completed: work that is to be done once more. Whether it changed.

    Raises `IllegalTransition` for a step that is cancelled or being worked on, and when its run has ended.
    """
    row = _locked(tx, steps, "step", step_id)
    current = StepStatus(row["status"])
    if current is StepStatus.PENDING:
        return False
    run = RunStatus(_locked(tx, runs, "run", row["run_id"])["status"])
    if current not in REOPENED or run.final:
        raise IllegalTransition("step", step_id, str(current), str(StepStatus.PENDING), ())
    _try_set(tx, steps, "step", step_id, current, StepStatus.PENDING, reason, UNCHANGED)
    told = {"from": current, "to": StepStatus.PENDING, "name": row["name"], **(data or {})}
    tx.event("step.pending", run_id=row["run_id"], step_id=step_id, message=reason, data=told)
    return True


def _count(entity: str, changed: Mapping[str, int]) -> None:
    # Loaded here: most commands only read.
    from ratchet.observe import metrics

    for to, number in changed.items():
        metrics.transitions.labels(entity=entity, to=to).inc(number)


def _locked(tx: Transaction, table: sa.Table, entity: str, key: int) -> sa.RowMapping:
    row = tx.connection.execute(_LOCK[table], {"key": key}).mappings().first()
    if row is None:
        raise NotFound(entity, key)
    return row


def _compare(
    expected: Iterable[RunStatus] | Iterable[StepStatus] | None,
    entity: str,
    key: int,
    current: RunStatus | StepStatus,
) -> None:
    if expected is not None:
        wanted = tuple(expected)
        if current not in wanted:
            raise StateChanged(entity, key, tuple(map(str, wanted)), str(current))


def _try_set(
    tx: Transaction,
    table: sa.Table,
    entity: str,
    key: int,
    current: RunStatus | StepStatus,
    to: RunStatus | StepStatus,
    reason: str | None,
    result: Any,
) -> sa.RowMapping | None:
    """Change it if it still is `current`; the names of what was changed, or nothing."""
    values = {
        "status": str(to),
        "reason": reason,
        "updated_at": tx.now,
        "ended_at": tx.now if to.final else None,
    }
    if result is not UNCHANGED:
        values["result"] = result
    parameters = {"key": key, "current": str(current), **values}
    changed = tx.connection.execute(_CHANGE[table], parameters).mappings().first()
    if changed is not None:
        tx.after_commit(lambda: _count(entity, {str(to): 1}))
    return changed
