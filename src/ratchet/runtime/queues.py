"""Queues as people see them: limits from the configuration, pausing, and what lies in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ratchet.kernel import Misuse
from ratchet.ledger import Topic, Transaction
from ratchet.ledger.tables import queues
from ratchet.runtime.job_rows import count_jobs
from ratchet.runtime.limits import QueueRule

if TYPE_CHECKING:
    from ratchet.config import Settings


class NoSuchQueue(Misuse):
    """No queue of that name is configured."""

    http_status = 404


@dataclass(frozen=True, slots=True)
class QueueState:
    name: str
    paused: bool
    concurrency: int | None
    rate_limit: int | None
    rate_seconds: float | None
    counts: dict[str, int]


def configured_rules(settings: Settings) -> dict[str, QueueRule]:
    return {
        name: QueueRule(name, queue.concurrency, queue.rate_limit, queue.rate_seconds)
        for name, queue in settings.queues.items()
    }


def set_paused(tx: Transaction, rules: dict[str, QueueRule], name: str, paused: bool) -> None:
    """Let a queue stand still, or go on. Jobs that run are not touched."""
    _existing(rules, name)
    upsert = tx.insert(queues).values(name=name, paused=paused)
    tx.connection.execute(upsert.on_conflict_do_update(index_elements=["name"], set_={"paused": paused}))
    tx.announce(Topic.JOBS)
    tx.event("queue.paused" if paused else "queue.resumed", message=name)


def paused_queues(tx: Transaction) -> frozenset[str]:
    return frozenset(tx.connection.execute(sa.select(queues.c.name).where(queues.c.paused)).scalars())


def list_queues(tx: Transaction, rules: dict[str, QueueRule]) -> list[QueueState]:
    """Every configured queue, and every other that still holds jobs."""
    counts = count_jobs(tx)
    paused = paused_queues(tx)
    names = [*rules, *sorted(counts.keys() - rules.keys())]
    states = []
    for name in names:
        rule = rules.get(name, QueueRule(name))
        states.append(
            QueueState(
                name=name,
                paused=name in paused,
                concurrency=rule.concurrency,
                rate_limit=rule.rate_limit,
                rate_seconds=rule.rate_seconds,
                counts=counts.get(name, {}),
            )
        )
    return states


def _existing(rules: dict[str, QueueRule], name: str) -> None:
    try:
        known(rules, name)
    except Misuse as error:
        raise NoSuchQueue(str(error), hint=error.hint) from None


def known(rules: dict[str, QueueRule], name: str) -> QueueRule:
    """The rule of a queue, or `Misuse` naming those there are."""
    rule = rules.get(name)
    if rule is None:
        raise Misuse(
            f"there is no queue {name!r}; there are: {', '.join(rules)}",
            hint=f"add [queues.{name}] to ratchet.toml",
        )
    return rule
