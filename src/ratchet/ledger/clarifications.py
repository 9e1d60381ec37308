"""Questions to people about a project, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, NotFound, ProjectId, RunId, StepId
from ratchet.ledger.tables import clarifications, runs
from ratchet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Clarification:
    """Asked about a whole project, one of its runs, or one step of that.

    `applies_to` is what waits for the answer, if it is `blocking`: onboarding, planning, execution or qa.
    """

    id: int
    project_id: ProjectId
    run_id: RunId | None
    step_id: StepId | None
    key: str
    question: str
    options: Any
    recommended: Any
    applies_to: str
    blocking: bool
    answer: Any
    answered_by: str | None
    answered_at: int | None
    created_at: int

    @property
    def open(self) -> bool:
        return self.answered_at is None


def add_clarification(tx: Transaction, project_id: int, key: str, **values: Any) -> Clarification | None:
    """A new question; `None` when there is one with that key about the same thing."""
    row = {"project_id": project_id, "key": key, "created_at": tx.now, **values}
    insert = tx.insert(clarifications).values(**row).on_conflict_do_nothing().returning(clarifications)
    made = tx.connection.execute(insert).mappings().first()
    return None if made is None else Clarification(**made)


def find_clarification(
    tx: Transaction, project_id: int, key: str, *, run_id: int | None = None, step_id: int | None = None
) -> Clarification | None:
    """The question with that key about exactly this: the project, the run, or the step."""
    wanted = sa.select(clarifications).where(
        clarifications.c.project_id == project_id,
        clarifications.c.key == key,
        _is(clarifications.c.run_id, run_id),
        _is(clarifications.c.step_id, step_id),
    )
    row = tx.connection.execute(wanted).mappings().first()
    return None if row is None else Clarification(**row)


def get_clarification(tx: Transaction, clarification_id: int) -> Clarification:
    """Raises `NotFound`."""
    wanted = sa.select(clarifications).where(clarifications.c.id == clarification_id)
    row = tx.connection.execute(wanted).mappings().first()
    if row is None:
        raise NotFound("clarification", clarification_id)
    return Clarification(**row)


def list_clarifications(
    tx: Transaction,
    *,
    project_id: int | None = None,
    run_id: int | None = None,
    open_only: bool = False,
    after: int = 0,
    limit: int = 100,
) -> list[Clarification]:
    """In the order in which they were asked, a page above the number `after`."""
    wanted = sa.select(clarifications).where(clarifications.c.id > after)
    if project_id is not None:
        wanted = wanted.where(clarifications.c.project_id == project_id)
    if run_id is not None:
        wanted = wanted.where(clarifications.c.run_id == run_id)
    if open_only:
        wanted = wanted.where(clarifications.c.answered_at.is_(None))
    rows = tx.connection.execute(wanted.order_by(clarifications.c.id).limit(limit)).mappings()
    return [Clarification(**row) for row in rows]


def latest_answered(
    tx: Transaction, *, project_id: int | None = None, run_id: int | None = None, limit: int = 100
) -> list[Clarification]:
    """Those with an answer, the last asked first."""
    wanted = sa.select(clarifications).where(clarifications.c.answered_at.is_not(None))
    for column, value in ((clarifications.c.project_id, project_id), (clarifications.c.run_id, run_id)):
        if value is not None:
            wanted = wanted.where(column == value)
    rows = tx.connection.execute(wanted.order_by(clarifications.c.id.desc()).limit(limit)).mappings()
    return [Clarification(**row) for row in rows]


def list_blockers(
    tx: Transaction,
    project_id: int,
    applies_to: str,
    *,
    run_id: int | None = None,
    step_id: int | None = None,
) -> list[Clarification]:
    """Blocking questions without an answer: about the project, and about the run and the step if one is given."""
    about: list[sa.ColumnElement[bool]] = [clarifications.c.run_id.is_(None)]
    if run_id is not None:
        whole = clarifications.c.step_id.is_(None)
        wanted = whole if step_id is None else whole | (clarifications.c.step_id == step_id)
        about.append((clarifications.c.run_id == run_id) & wanted)
    return _blockers(tx, project_id, (applies_to,), sa.or_(*about))


def list_blockers_of_run(tx: Transaction, run_id: int, applies_to: Sequence[str]) -> list[Clarification]:
    """The same for a run with all its steps, and for its project."""
    project_id = tx.connection.execute(sa.select(runs.c.project_id).where(runs.c.id == run_id)).scalar_one()
    about = clarifications.c.run_id.is_(None) | (clarifications.c.run_id == run_id)
    return _blockers(tx, project_id, applies_to, about)


def _blockers(
    tx: Transaction, project_id: int, applies_to: Sequence[str], about: sa.ColumnElement[bool]
) -> list[Clarification]:
    wanted = (
        sa.select(clarifications)
        .where(
            clarifications.c.project_id == project_id,
            clarifications.c.applies_to.in_(applies_to),
            clarifications.c.blocking,
            clarifications.c.answered_at.is_(None),
            about,
        )
        .order_by(clarifications.c.id)
    )
    return [Clarification(**row) for row in tx.connection.execute(wanted).mappings()]


def record_answer(tx: Transaction, clarification_id: int, answer: Any, *, by: str) -> None:
    """Write an answer down. Raises `Conflict` when somebody has answered already."""
    answered = (
        sa.update(clarifications)
        .where(clarifications.c.id == clarification_id, clarifications.c.answered_at.is_(None))
        .values(answer=answer, answered_by=by, answered_at=tx.now)
    )
    if tx.connection.execute(answered).rowcount:
        return
    asked = get_clarification(tx, clarification_id)
    raise Conflict(f"clarification {asked.key!r} was answered already, by {asked.answered_by}")


def _is(column: sa.ColumnElement[Any], value: int | None) -> sa.ColumnElement[bool]:
    return column.is_(None) if value is None else column == value
