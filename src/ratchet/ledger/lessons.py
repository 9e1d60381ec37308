"""Lessons: what specialists of a research run have learned, in their own words."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from ratchet.ledger.tables import lessons
from ratchet.ledger.transaction import Transaction

_NEWEST = (
    sa.select(lessons)
    .where(lessons.c.run_id == sa.bindparam("run"))
    .order_by(lessons.c.id.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
)


@dataclass(frozen=True, slots=True)
class Lesson:
    id: int
    run_id: int
    specialist: str
    trial: int | None
    text: str
    at: int


def add_lesson(tx: Transaction, run_id: int, specialist: str, text: str, *, trial: int | None = None) -> int:
    row = {"run_id": run_id, "specialist": specialist, "trial": trial, "text": text, "at": tx.now}
    number: int = tx.connection.execute(sa.insert(lessons).values(**row).returning(lessons.c.id)).scalar_one()
    tx.event("lesson.written", run_id=run_id, message=text, data={"lesson": number, "specialist": specialist})
    return number


def list_lessons(tx: Transaction, run_id: int, *, before: int | None = None, limit: int = 50) -> list[Lesson]:
    """Lessons, newest first, a page at a time."""
    query = _NEWEST if before is None else _NEWEST.where(lessons.c.id < before)
    rows = tx.connection.execute(query, {"run": run_id, "most": limit}).mappings()
    return [Lesson(**row) for row in rows]
