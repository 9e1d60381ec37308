"""The steps of a protocol: what they have besides a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Conflict, NotFound, RunId, StepId, StepStatus
from ratchet.ledger.runs import create_steps
from ratchet.ledger.tables import protocol_steps, steps
from ratchet.ledger.transaction import Transaction

_OF_STEP = ("name", "status", "reason", "spec", "result", "created_at", "updated_at", "ended_at")
_ROW = sa.select(protocol_steps, *(steps.c[name] for name in _OF_STEP)).join(
    steps, steps.c.id == protocol_steps.c.step_id
)


@dataclass(frozen=True, slots=True)
class ProtocolStep:
    """A step, with its place, who does it, and what policies did to it.

    `name` is like `01-build`, `spec` is its StepSpec; `depends_on` are names of steps; nothing means the one before.
    """

    step_id: StepId
    run_id: RunId
    step_index: int
    step_type: str
    engine_id: str | None
    model: str | None
    policy: Any
    runtime_state: Any
    summary: str | None
    retries: int
    depends_on: Any
    commit: str | None
    awaits_ci: bool
    name: str
    status: StepStatus
    reason: str | None
    spec: Any
    result: Any
    created_at: int
    updated_at: int
    ended_at: int | None

    @property
    def agent(self) -> str:
        """Its name without the number in front and an ending: what triggers call it."""
        plain = self.name.removesuffix(".md")
        number, dash, rest = plain.partition("-")
        return rest if dash and number.isdecimal() else plain


def add_protocol_steps(tx: Transaction, run_id: int, added: Sequence[Mapping[str, Any]]) -> list[StepId]:
    """Add pending steps. Each has `name`, `step_index`, `step_type`, `spec` and whatever other columns it needs.

    Raises `Conflict` when a name or a place is taken.
    """
    numbers = create_steps(tx, run_id, [(each["name"], each.get("spec") or {}) for each in added])
    rows = [
        {
            "step_id": number,
            "run_id": run_id,
            **{
                column.name: each.get(column.name)
                for column in protocol_steps.c
                if column.name not in ("step_id", "run_id")
            },
            "retries": 0,
            "awaits_ci": False,
        }
        for number, each in zip(numbers, added, strict=True)
    ]
    try:
        with tx.connection.begin_nested():
            tx.connection.execute(sa.insert(protocol_steps), rows)
    except exc.IntegrityError as error:
        raise Conflict(f"protocol {run_id} has a step at that index already") from error
    return numbers


def change_protocol_step(tx: Transaction, step_id: int, **values: Any) -> None:
    """Set columns of a step that are no status."""
    changed = tx.connection.execute(
        sa.update(protocol_steps).where(protocol_steps.c.step_id == step_id).values(**values)
    )
    if not changed.rowcount:
        raise NotFound("step", step_id)


def get_protocol_step(tx: Transaction, step_id: int) -> ProtocolStep:
    """Raises `NotFound`, also for a step of another kind of run."""
    row = tx.connection.execute(_ROW.where(protocol_steps.c.step_id == step_id)).mappings().first()
    if row is None:
        raise NotFound("step", step_id)
    return _step(row)


def list_protocol_steps(tx: Transaction, run_id: int) -> list[ProtocolStep]:
    """All steps of a protocol, in their order."""
    wanted = _ROW.where(protocol_steps.c.run_id == run_id).order_by(protocol_steps.c.step_index)
    return [_step(row) for row in tx.connection.execute(wanted).mappings()]


def count_protocol_steps(tx: Transaction, run_ids: Sequence[int]) -> dict[int, Counter[StepStatus]]:
    """How many steps of each status some protocols have."""
    counted = (
        sa.select(protocol_steps.c.run_id, steps.c.status, sa.func.count())
        .join(steps, steps.c.id == protocol_steps.c.step_id)
        .where(protocol_steps.c.run_id.in_(run_ids))
        .group_by(protocol_steps.c.run_id, steps.c.status)
    )
    found: dict[int, Counter[StepStatus]] = {run_id: Counter() for run_id in run_ids}
    for run_id, status, number in tx.connection.execute(counted):
        found[run_id][StepStatus(status)] = number
    return found


def _step(row: sa.RowMapping) -> ProtocolStep:
    return ProtocolStep(**{**row, "status": StepStatus(row["status"])})
