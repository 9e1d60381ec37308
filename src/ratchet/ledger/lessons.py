"""Lessons: what specialists of a research run have learned, in their own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from ratchet.ledger.tables import lessons
from ratchet.ledger.transaction import Transaction

# Above every number that a database can give.
_ENDLESS = 2**63 - 1
_NEWEST = (
    sa.select(lessons)
    .where(lessons.c.run_id == sa.bindparam("run"), lessons.c.id < sa.bindparam("before"))
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
    given = {"run": run_id, "before": _ENDLESS if before is None else before, "most": limit}
    return [Lesson(*row) for row in tx.connection.execute(_NEWEST, given).all()]


def lessons_at(tx: Transaction, numbers: Sequence[int]) -> list[Lesson]:
    """The lessons with these numbers, in their order. A lesson never changes, so each is read once."""
    known = tx.remembered.several([(Lesson, number) for number in numbers])
    missing = [number for number, lesson in zip(numbers, known, strict=True) if lesson is None]
    if not missing:
        return known
    query = sa.select(lessons).where(lessons.c.id.in_(missing))
    read = {row.id: Lesson(*row) for row in tx.connection.execute(query)}
    tx.remembered.add({(Lesson, number): lesson for number, lesson in read.items()})
    return [lesson or read[number] for number, lesson in zip(numbers, known, strict=True)]
