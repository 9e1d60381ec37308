"""What is going on and what waits for a person, over all flows. Every query reads a page of an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger.agents import AgentStatus, VersionStatus
from ratchet.ledger.clarifications import Clarification
from ratchet.ledger.runs import Run, Step, list_runs
from ratchet.ledger.tables import agent_versions, agents, clarifications, steps
from ratchet.ledger.transaction import Transaction

# A run with more steps than this is counted no further.
_MOST_STEPS = 1000


@dataclass(frozen=True, slots=True)
class StepCounts:
    """How many steps of a run are in which status. `whole` is False when it has more than were counted."""

    by_status: Counter[StepStatus]
    whole: bool

    @property
    def total(self) -> int:
        return self.by_status.total()


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An agent whose current version crashed too often to be started again by itself."""

    agent: str
    commit: str
    version: str
    reason: str | None


def open_runs(tx: Transaction, *statuses: RunStatus, limit: int) -> list[Run]:
    """Runs in these statuses, newest first, at most `limit` of each."""
    found = [run for status in statuses for run in list_runs(tx, status=status, limit=limit)]
    return sorted(found, key=lambda run: run.id, reverse=True)


def count_steps(tx: Transaction, run_ids: Sequence[int]) -> dict[int, StepCounts]:
    """How far these runs are."""
    counted = {}
    for run_id in run_ids:
        some = sa.select(steps.c.status).where(steps.c.run_id == run_id).limit(_MOST_STEPS + 1).subquery()
        rows = tx.connection.execute(sa.select(some.c.status, sa.func.count()).group_by(some.c.status))
        by_status = Counter({StepStatus(status): number for status, number in rows})
        counted[run_id] = StepCounts(by_status, by_status.total() <= _MOST_STEPS)
    return counted


def steps_awaiting_review(tx: Transaction, run_ids: Sequence[int], *, limit: int) -> list[Step]:
    """The steps of these runs that have been carried out and wait to be judged."""
    query = (
        sa.select(steps)
        .where(steps.c.run_id.in_(run_ids), steps.c.status == str(StepStatus.NEEDS_QA))
        .order_by(steps.c.run_id, steps.c.position)
        .limit(limit)
    )
    rows = tx.connection.execute(query).mappings() if run_ids else ()
    return [Step(**{**row, "status": StepStatus(row["status"])}) for row in rows]


def questions_of(tx: Transaction, open_now: Sequence[Run], *, limit: int) -> list[Clarification]:
    """The blocking questions without an answer about these runs and about their projects as such, oldest first."""
    about = [
        clarifications.c.run_id.in_([run.id for run in open_now]),
        clarifications.c.run_id.is_(None)
        & clarifications.c.project_id.in_({run.project_id for run in open_now if run.project_id is not None}),
    ]
    found: list[Clarification] = []
    for condition in about if open_now else ():
        query = (
            sa.select(clarifications)
            .where(condition, clarifications.c.blocking, clarifications.c.answered_at.is_(None))
            .order_by(clarifications.c.id)
            .limit(limit)
        )
        found += [Clarification(**row) for row in tx.connection.execute(query).mappings()]
    return sorted(found, key=lambda each: each.id)[:limit]


def quarantined_agents(tx: Transaction, *, limit: int) -> list[Quarantined]:
    query = (
        sa.select(agents.c.name, agent_versions.c.commit, agent_versions.c.version, agent_versions.c.reason)
        .join(
            agent_versions,
            (agent_versions.c.agent_id == agents.c.id) & (agent_versions.c.commit == agents.c.current),
        )
        .where(
            agents.c.status != str(AgentStatus.DELETED),
            agent_versions.c.status == str(VersionStatus.QUARANTINED),
        )
        .order_by(agents.c.name)
        .limit(limit)
    )
    return [Quarantined(*row) for row in tx.connection.execute(query)]
