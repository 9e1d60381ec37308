"""Research runs: their standing, how their specialists are doing, and the lessons these have learned.

One row per run and one per specialist, changed with every trial and session: whoever asks adds up nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Direction, NotFound, TrialStatus, Usage, exp_id
from ratchet.ledger.tables import lessons, research, runs, specialists, trials
from ratchet.ledger.transaction import Transaction, upsert

_USAGE = tuple(each.name for each in fields(Usage))
_DIGITS = 18
_OF_RUN = tuple(research.c.keys())
_OF_ONE = tuple(specialists.c.keys())
_STANDING = sa.select(research).where(research.c.run_id == sa.bindparam("run"))
_ACTIVE = (
    sa.update(research)
    .where(research.c.run_id == sa.bindparam("run"))
    .values(active_ms=research.c.active_ms + sa.bindparam("ms", type_=sa.Integer))
)
_RECORD = upsert(
    specialists,
    ("run_id", "name"),
    lambda new: {
        "sessions": specialists.c.sessions + 1,
        "failures": sa.case((new.problem.is_(None), 0), else_=specialists.c.failures + 1),
        **{name: new[name] for name in ("problem", "updated_at", "resume", "told")},
        **{name: specialists.c[name] + new[name] for name in _USAGE},
    },
)
_SPECIALISTS = (
    sa.select(specialists).where(specialists.c.run_id == sa.bindparam("run")).order_by(specialists.c.name)
)
# Both at once: whoever begins a session wants to know of the run and of one specialist.
_BOTH = (
    sa.select(*research.c, *specialists.c)
    .select_from(
        research.outerjoin(
            specialists,
            (specialists.c.run_id == research.c.run_id) & (specialists.c.name == sa.bindparam("wanted")),
        )
    )
    .where(research.c.run_id == sa.bindparam("run"))
)


@dataclass(frozen=True, slots=True)
class Standing:
    """`trials` counts what was submitted, without the baseline and without infrastructure errors."""

    run_id: int
    task: str
    score_field: str
    direction: Direction
    keep_policy: str
    next_number: int
    trials: int
    baseline: Mapping[str, Any] | None
    best: int | None
    best_score: float | None
    best_commit: str | None
    active_ms: int
    kept_at_ms: int

    @property
    def best_exp_id(self) -> str | None:
        return None if self.best is None else exp_id(self.best)


@dataclass(frozen=True, slots=True)
class SpecialistRow:
    run_id: int
    name: str
    sessions: int
    failures: int
    problem: str | None
    resume: str | None
    told: int
    usage: Usage
    updated_at: int


def open_research(
    tx: Transaction, run_id: int, *, task: str, score_field: str, direction: Direction, keep_policy: str
) -> None:
    """Give a run its standing: no trial yet."""
    tx.connection.execute(
        sa.insert(research).values(
            run_id=run_id,
            task=task,
            score_field=score_field,
            direction=str(direction),
            keep_policy=keep_policy,
            next_number=0,
            trials=0,
            active_ms=0,
            kept_at_ms=0,
        )
    )


def get_standing(tx: Transaction, run_id: int) -> Standing:
    """Raises `NotFound` when there is no such run, or it is not research."""
    row = tx.connection.execute(_STANDING, {"run": run_id}).mappings().first()
    if row is None:
        raise NotFound("research run", run_id)
    return _standing(row)


def standings(tx: Transaction, run_ids: Sequence[int]) -> dict[int, Standing]:
    """Those of several runs at once, by run; what is not research is left out."""
    query = sa.select(research).where(research.c.run_id.in_(list(run_ids)))
    return {row["run_id"]: _standing(row) for row in tx.connection.execute(query).mappings()}


def find_research(tx: Transaction, wanted: str) -> int:
    """The number of a research run, given as its number or as its name; of several with one name, the newest."""
    query = sa.select(runs.c.id).where(runs.c.kind == "research").order_by(runs.c.id.desc()).limit(1)
    # No run has a number that a database cannot hold.
    numbered = wanted.isascii() and wanted.isdigit() and len(wanted) <= _DIGITS
    by = runs.c.id == int(wanted) if numbered else runs.c.name == wanted
    found = tx.connection.execute(query.where(by)).scalar()
    if found is None:
        raise NotFound("research run", wanted)
    return int(found)


def set_baseline(tx: Transaction, run_id: int, baseline: Mapping[str, Any]) -> None:
    """Keep what the baseline came to: its score, its measurements, their spread."""
    tx.connection.execute(
        sa.update(research).where(research.c.run_id == run_id).values(baseline=dict(baseline))
    )


def add_active(tx: Transaction, run_id: int, ms: int) -> None:
    """Count time in which the run really ran."""
    tx.connection.execute(_ACTIVE, {"run": run_id, "ms": ms})


def get_standings(tx: Transaction, run_id: int, specialist: str) -> tuple[Standing, SpecialistRow]:
    """A run and one of its specialists as they stand; one that has done nothing yet stands at nought.

    Raises `NotFound` as `get_standing` does.
    """
    row = tx.connection.execute(_BOTH, {"run": run_id, "wanted": specialist}).first()
    if row is None:
        raise NotFound("research run", run_id)
    of_run, of_one = row[: len(_OF_RUN)], row[len(_OF_RUN) :]
    known = of_one[0] is not None
    return (
        _standing(dict(zip(_OF_RUN, of_run, strict=True))),
        _specialist(dict(zip(_OF_ONE, of_one, strict=True)))
        if known
        else SpecialistRow(run_id, specialist, 0, 0, None, None, 0, Usage(), 0),
    )


def list_specialists(tx: Transaction, run_id: int) -> list[SpecialistRow]:
    return [_specialist(row) for row in tx.connection.execute(_SPECIALISTS, {"run": run_id}).mappings().all()]


def record_specialist(
    tx: Transaction,
    run_id: int,
    name: str,
    usage: Usage,
    *,
    problem: str | None = None,
    resume: str | None = None,
    told: int = 0,
) -> None:
    """Count a session that has ended. A `problem` says that it failed; success clears the count of failures."""
    row = {
        "run_id": run_id,
        "name": name,
        "sessions": 1,
        "failures": int(problem is not None),
        "problem": problem,
        "resume": resume,
        "told": told,
        "updated_at": tx.now,
        **usage.measures(),
    }
    tx.connection.execute(_RECORD(tx.dialect), row)


def _standing(row: Mapping[str, Any] | sa.RowMapping) -> Standing:
    return Standing(**{**row, "direction": Direction(row["direction"])})


def _specialist(row: Mapping[str, Any] | sa.RowMapping) -> SpecialistRow:
    plain = {name: value for name, value in row.items() if name not in _USAGE}
    return SpecialistRow(**plain, usage=Usage(**{name: row[name] for name in _USAGE}))


# Above every number that a database can give.
_ENDLESS = 2**63 - 1
# With how its trial ended: one that was measured is what a lesson can stand on.
_LESSONS = sa.select(lessons, trials.c.status).outerjoin(
    trials, (trials.c.run_id == lessons.c.run_id) & (trials.c.number == lessons.c.trial)
)
_NEWEST = (
    _LESSONS.where(lessons.c.run_id == sa.bindparam("run"), lessons.c.id < sa.bindparam("before"))
    .order_by(lessons.c.id.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
)


@dataclass(frozen=True, slots=True)
class Lesson:
    """`trial` is the last one that its session had handed in when it was written, and `status` how that ended."""

    id: int
    run_id: int
    specialist: str
    trial: int | None
    text: str
    at: int
    status: TrialStatus | None = None

    @property
    def verified(self) -> bool:
        """Whether it was written behind a trial with a valid score."""
        return self.status is not None and self.status.valid

    @property
    def refused(self) -> bool:
        """Whether its trial was disqualified: what broke the rules has nothing to teach."""
        return self.status is TrialStatus.DISQUALIFIED


def add_lesson(tx: Transaction, run_id: int, specialist: str, text: str, *, trial: int | None = None) -> int:
    row = {"run_id": run_id, "specialist": specialist, "trial": trial, "text": text, "at": tx.now}
    number: int = tx.connection.execute(sa.insert(lessons).values(**row).returning(lessons.c.id)).scalar_one()
    tx.event("lesson.written", run_id=run_id, message=text, data={"lesson": number, "specialist": specialist})
    return number


def list_lessons(tx: Transaction, run_id: int, *, before: int | None = None, limit: int = 50) -> list[Lesson]:
    """Lessons, newest first, a page at a time."""
    given = {"run": run_id, "before": _ENDLESS if before is None else before, "most": limit}
    return [_lesson(row) for row in tx.connection.execute(_NEWEST, given).all()]


def lessons_at(tx: Transaction, numbers: Sequence[int]) -> list[Lesson]:
    """The lessons with these numbers, in their order. A lesson never changes, so each is read once."""
    known = tx.remembered.several([(Lesson, number) for number in numbers])
    missing = [number for number, lesson in zip(numbers, known, strict=True) if lesson is None]
    if not missing:
        return known
    query = _LESSONS.where(lessons.c.id.in_(missing))
    read = {row.id: _lesson(row) for row in tx.connection.execute(query)}
    tx.remembered.add({(Lesson, number): lesson for number, lesson in read.items()})
    return [lesson or read[number] for number, lesson in zip(numbers, known, strict=True)]


def _lesson(row: sa.Row[Any]) -> Lesson:
    known = row._mapping
    status = known["status"]
    return Lesson(**{**known, "status": None if status is None else TrialStatus(status)})
