"""What forges say about commits: which deliveries were taken, and the newest word of each check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import RunId
from ratchet.ledger.tables import ci_checks, protocol_steps, protocols, webhook_deliveries
from ratchet.ledger.transaction import Transaction

# Of two words of the same second, the one that says more; and rather no than yes.
_RANKS = {"pending": 0, "neutral": 1, "passed": 2, "failed": 3}


@dataclass(frozen=True, slots=True)
class CiCheck:
    """The newest word of one check about one commit; `detail` says where it failed."""

    project_id: int
    commit: str
    name: str
    provider: str
    state: str
    url: str | None
    detail: Any
    at: int
    updated_at: int


def add_delivery(
    tx: Transaction, project_id: int, provider: str, delivery: str, *, event: str, outcome: str
) -> int | None:
    """Remember a delivery; its number, or nothing if it was taken before.

    A second one that comes at the same time waits until the first is taken or given up.
    """
    row = {
        "project_id": project_id,
        "provider": provider,
        "delivery": delivery,
        "event": event,
        "outcome": outcome,
        "at": tx.now,
    }
    insert = tx.insert(webhook_deliveries).values(row)
    unless_there = insert.on_conflict_do_nothing(index_elements=["project_id", "provider", "delivery"])
    number: int | None = tx.connection.execute(unless_there.returning(webhook_deliveries.c.id)).scalar()
    return number


def close_delivery(tx: Transaction, number: int, *, run_id: int | None, outcome: str) -> None:
    """Say what became of a delivery."""
    tx.connection.execute(
        sa.update(webhook_deliveries)
        .where(webhook_deliveries.c.id == number)
        .values(run_id=run_id, outcome=outcome)
    )


def forget_deliveries(tx: Transaction, *, before: int, most: int) -> int:
    """Forget up to `most` deliveries older than `before`; how many. Never waits for others who do the same."""
    old = (
        sa.select(webhook_deliveries.c.id)
        .where(webhook_deliveries.c.at < before)
        .order_by(webhook_deliveries.c.at)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    numbers = list(tx.connection.execute(old).scalars())
    if numbers:
        tx.connection.execute(sa.delete(webhook_deliveries).where(webhook_deliveries.c.id.in_(numbers)))
    return len(numbers)


def put_check(
    tx: Transaction,
    project_id: int,
    commit: str,
    name: str,
    *,
    provider: str,
    state: str,
    at: int,
    url: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> bool:
    """Take the word of a check, unless a newer one is there; whether it was taken."""
    said = {
        "provider": provider,
        "state": state,
        "url": url,
        "detail": detail,
        "at": at,
        "updated_at": tx.now,
    }
    insert = tx.insert(ci_checks).values(project_id=project_id, commit=commit, name=name, **said)
    newer = sa.or_(
        insert.excluded.at > ci_checks.c.at,
        sa.and_(
            insert.excluded.at == ci_checks.c.at, _rank(insert.excluded.state) >= _rank(ci_checks.c.state)
        ),
    )
    upsert = insert.on_conflict_do_update(
        index_elements=["project_id", "commit", "name"],
        set_={column: insert.excluded[column] for column in said},
        where=newer,
    )
    return tx.connection.execute(upsert.returning(ci_checks.c.name)).first() is not None


def checks_of(tx: Transaction, project_id: int, commits: Iterable[str]) -> list[CiCheck]:
    """What is known about some commits, by commit and name."""
    wanted = (
        sa.select(ci_checks)
        .where(ci_checks.c.project_id == project_id, ci_checks.c.commit.in_(list(commits)))
        .order_by(ci_checks.c.commit, ci_checks.c.name)
    )
    return [CiCheck(**row) for row in tx.connection.execute(wanted).mappings()]


def runs_of_commit(tx: Transaction, project_id: int, commit: str) -> list[RunId]:
    """The protocols of a project whose branch was last pushed with this commit, or one of whose steps it is."""
    of_steps = sa.select(protocol_steps.c.run_id).where(protocol_steps.c.commit == commit)
    wanted = (
        sa.select(protocols.c.run_id)
        .where(protocols.c.project_id == project_id)
        .where(sa.or_(protocols.c.pushed == commit, protocols.c.run_id.in_(of_steps)))
        .order_by(protocols.c.run_id)
    )
    return [RunId(number) for number in tx.connection.execute(wanted).scalars()]


def _rank(state: sa.ColumnElement[str]) -> sa.ColumnElement[int]:
    return sa.case(_RANKS, value=state, else_=0)
