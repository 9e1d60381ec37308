"""Approvals: questions that a person answers once, and that wait for it as long as it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, NotFound
from ratchet.ledger.tables import approvals, runs
from ratchet.ledger.transaction import Transaction

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


def still_pending(tx: Transaction, approval_id: int) -> bool:
    """Whether nobody has decided yet, and nobody will before this transaction ends.

    Whoever blocks a run for an approval asks this first, in the same transaction: a decision is then either seen, or
    comes later and finds the run blocked.
    """
    return _locked(tx, approval_id).status is ApprovalStatus.PENDING


def decide_approval(
    tx: Transaction, approval_id: int, *, approved: bool, by: str, comment: str | None = None
) -> Approval:
    """Answer a pending approval. Raises `NotFound`, and `Conflict` when it is not pending any more."""
    found = _locked(tx, approval_id)
    if found.status is not ApprovalStatus.PENDING:
        who = f" by {found.decided_by}" if found.decided_by else ""
        raise Conflict(
            f"approval {approval_id} is {found.status}{who}; only a pending approval can be decided",
            hint=f"look at it with `ratchet approval show {approval_id}`",
        )
    status = ApprovalStatus.APPROVED if approved else ApprovalStatus.REFUSED
    _end(tx, found, status, comment, by)
    return get_approval(tx, approval_id)


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
    tx: Transaction, approval: Approval, status: ApprovalStatus, comment: str | None, by: str | None
) -> None:
    tx.connection.execute(
        sa.update(approvals)
        .where(approvals.c.id == approval.id)
        .values(status=str(status), comment=comment, decided_by=by, decided_at=tx.now)
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
