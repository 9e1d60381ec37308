"""Questions to people and their answers: approvals, which are given once, and clarifications of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, Misuse, NotFound, ProjectId, RunId, StepId
from ratchet.ledger._columns import to_json
from ratchet.ledger.tables import approvals, clarifications, runs
from ratchet.ledger.transaction import Transaction

ANSWER_SCHEMA = "answer_schema"
"""In the data of an approval: what its answer must fit."""
_LONGEST_ANSWER = 1_000_000
_SHOWN_SCHEMA = 500
_BY_ONCE = sa.select(approvals).where(approvals.c.once == sa.bindparam("wanted"))
_BY_ID = sa.select(approvals).where(approvals.c.id == sa.bindparam("wanted"))
_LOCK = _BY_ID.with_for_update()


class ApprovalStatus(StrEnum):
    """`closed` is what becomes of a question whose run ended before anybody answered it."""

    PENDING = "pending"
    APPROVED = "approved"
    REFUSED = "refused"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Approval:
    id: int
    run_id: int | None
    attempt_id: int | None
    once: str
    subject: str
    question: str
    data: Any
    status: ApprovalStatus
    comment: str | None
    decided_by: str | None
    created_at: int
    decided_at: int | None
    answer: Any = None

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """What an answer must fit, as JSON Schema, where more is asked for than yes or no."""
        schema = self.data.get(ANSWER_SCHEMA) if isinstance(self.data, dict) else None
        return schema if isinstance(schema, dict) else None


def request_approval(
    tx: Transaction,
    once: str,
    *,
    subject: str,
    question: str,
    data: Mapping[str, Any] | None = None,
    run_id: int | None = None,
    attempt_id: int | None = None,
) -> Approval:
    """The approval known as `once`, asked for now if it was not before."""
    row = {
        "run_id": run_id,
        "attempt_id": attempt_id,
        "once": once,
        "subject": subject,
        "question": question,
        "data": dict(data or {}),
        "status": str(ApprovalStatus.PENDING),
        "created_at": tx.now,
    }
    unless_there = tx.insert(approvals).on_conflict_do_nothing(index_elements=["once"])
    number = tx.connection.execute(unless_there.values(row).returning(approvals.c.id)).scalar()
    found = _approval(tx.connection.execute(_BY_ONCE, {"wanted": once}).mappings().one())
    if number is not None:
        _say(tx, found, "requested", question)
    return found


def get_approval(tx: Transaction, approval_id: int) -> Approval:
    row = tx.connection.execute(_BY_ID, {"wanted": approval_id}).mappings().first()
    if row is None:
        raise NotFound("approval", approval_id)
    return _approval(row)


def list_approvals(
    tx: Transaction,
    *,
    status: ApprovalStatus | None = None,
    run_id: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Approval]:
    """Approvals, newest first, a page at a time."""
    query = sa.select(approvals).order_by(approvals.c.id.desc()).limit(limit)
    if status is not None:
        query = query.where(approvals.c.status == str(status))
    if run_id is not None:
        query = query.where(approvals.c.run_id == run_id)
    if before is not None:
        query = query.where(approvals.c.id < before)
    return [_approval(row) for row in tx.connection.execute(query).mappings()]


def pending_approvals(tx: Transaction, *, kind: str, name: str) -> list[Approval]:
    """Approvals that runs of this kind and name wait for, oldest first."""
    query = (
        sa.select(approvals)
        .join(runs, runs.c.id == approvals.c.run_id)
        .where(runs.c.kind == kind, runs.c.name == name, approvals.c.status == str(ApprovalStatus.PENDING))
    )
    return [_approval(row) for row in tx.connection.execute(query.order_by(approvals.c.id)).mappings()]


def still_pending(tx: Transaction, approval_id: int) -> bool:
    """Whether nobody has decided yet, and nobody will before this transaction ends.

    Whoever blocks a run for an approval asks this first, in the same transaction: a decision is then either seen, or
    comes later and finds the run blocked.
    """
    return _locked(tx, approval_id).status is ApprovalStatus.PENDING


def decide_approval(
    tx: Transaction,
    approval_id: int,
    *,
    approved: bool,
    by: str,
    comment: str | None = None,
    answer: Any = None,
) -> Approval:
    """Answer a pending approval. Raises `NotFound`, and `Conflict` when it is not pending any more.

    Raises `Misuse` for an answer that does not fit what is asked for.
    """
    found = _locked(tx, approval_id)
    if found.status is not ApprovalStatus.PENDING:
        who = f" by {found.decided_by}" if found.decided_by else ""
        raise Conflict(
            f"approval {approval_id} is {found.status}{who}; only a pending approval can be decided",
            hint=f"look at it with `ratchet approval show {approval_id}`",
        )
    if approved or answer is not None:
        _require_fitting(found, answer, approved=approved)
    status = ApprovalStatus.APPROVED if approved else ApprovalStatus.REFUSED
    _end(tx, found, status, comment, by, answer)
    return get_approval(tx, approval_id)


def _require_fitting(approval: Approval, answer: Any, *, approved: bool) -> None:
    """Raise `Misuse` where the answer is not what was asked for."""
    # Loaded here: most of what is asked is yes or no.
    from ratchet.flowkit.value_schema import first_mistake

    schema = approval.answer_schema
    if schema is None or not approved:
        if answer is not None:
            raise Misuse(
                f"approval {approval.id} asks for yes or no, and takes no other answer",
                hint="say why in a comment",
            )
        return
    problem = first_mistake(answer, schema)
    if problem is None and len(to_json(answer)) > _LONGEST_ANSWER:
        problem = f"it has more than {_LONGEST_ANSWER:,} characters"
    if problem is not None:
        given = "no answer was given" if answer is None else f"the answer does not fit: {problem}"
        raise Misuse(
            f"approval {approval.id} asks for more than yes or no: {given}",
            hint=f"answer with JSON that fits {to_json(schema)[:_SHOWN_SCHEMA]}",
        )


def close_approvals(tx: Transaction, run_id: int, reason: str) -> None:
    """Close what is still pending of a run that has ended: nobody needs the answer any more."""
    pending = sa.select(approvals).where(
        approvals.c.run_id == run_id, approvals.c.status == str(ApprovalStatus.PENDING)
    )
    for row in tx.connection.execute(pending.with_for_update()).mappings().all():
        _end(tx, _approval(row), ApprovalStatus.CLOSED, reason, None)


def _locked(tx: Transaction, approval_id: int) -> Approval:
    """The approval, held until the end of the transaction. Its run is locked first, as by all who change both."""
    found = get_approval(tx, approval_id)
    if found.run_id is not None:
        tx.connection.execute(sa.select(runs.c.id).where(runs.c.id == found.run_id).with_for_update())
    row = tx.connection.execute(_LOCK, {"wanted": approval_id}).mappings().one()
    return _approval(row)


def _end(
    tx: Transaction,
    approval: Approval,
    status: ApprovalStatus,
    comment: str | None,
    by: str | None,
    answer: Any = None,
) -> None:
    tx.connection.execute(
        sa.update(approvals)
        .where(approvals.c.id == approval.id)
        .values(status=str(status), comment=comment, decided_by=by, decided_at=tx.now, answer=answer)
    )
    _say(tx, approval, str(status), comment, by)


def _say(tx: Transaction, approval: Approval, what: str, message: str | None, by: str | None = None) -> None:
    tx.event(
        f"approval.{what}",
        run_id=approval.run_id,
        attempt_id=approval.attempt_id,
        message=message,
        data={"approval": approval.id, "subject": approval.subject, "by": by},
    )


def _approval(row: sa.RowMapping) -> Approval:
    return Approval(**{**row, "status": ApprovalStatus(row["status"])})


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
    raise Conflict(
        f"clarification {asked.key!r} was answered already, by {asked.answered_by}",
        hint="nothing is to be done; its answer is shown with the questions of the project or the protocol",
    )


def _is(column: sa.ColumnElement[Any], value: int | None) -> sa.ColumnElement[bool]:
    return column.is_(None) if value is None else column == value
