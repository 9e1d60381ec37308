"""What happens in all flows, what waits for a person, and what was spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from ratchet.kernel import BudgetPolicy, Limits, RunStatus, StepStatus, Usage
from ratchet.ledger.agents import AgentStatus, VersionStatus
from ratchet.ledger.questions import Clarification
from ratchet.ledger.runs import Run, Step, get_run, list_runs
from ratchet.ledger.tables import agent_versions, agents, budgets, clarifications, steps, usage_days
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.usage import DAY_MS, Budgets, Scope, totals

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


By = Literal["day", "engine", "run", "project"]
_MEASURES = tuple(each.name for each in fields(Usage))
_SHOWN = (
    *("input_tokens", "cached_tokens", "output_tokens", "cost_usd", "wall_seconds"),
    *("tokens", "trials"),
)
_MOST_DAYS = 366
_ROWS = 20
_REPLAYED = "replay"
_SUMS = [sa.func.sum(usage_days.c[name]).label(name) for name in _MEASURES]
_KEYS: dict[By, tuple[sa.Column[Any], ...]] = {
    "day": (usage_days.c.day,),
    "engine": (usage_days.c.engine, usage_days.c.model),
    "run": (usage_days.c.run_id,),
    "project": (usage_days.c.project_id,),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of one day, of one engine with one model, of one run or of one project. `key` says of which."""

    key: tuple[Any, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """What one run or project may use, has used, and may still use."""

    scope: Scope
    scope_id: int
    limits: Limits
    policy: BudgetPolicy
    used: Usage

    @property
    def left(self) -> Limits:
        return self.limits.less(self.used)

    @property
    def exhausted(self) -> tuple[str, float, float] | None:
        """The first measure with nothing left, as (measure, used, limit), unless nobody cares."""
        return None if self.policy is BudgetPolicy.OFF else self.limits.reached_by(self.used)


def today(tx: Transaction) -> int:
    """The number of the day that it is, in UTC."""
    return tx.now // DAY_MS


def spent(
    tx: Transaction, by: By, *, since: int, without: Collection[int | None] = (), limit: int = 100
) -> list[Spent]:
    """The usage since a day, those of projects in `without` left out; days newest first, others the most costly first.

    Usage without a run has run 0, and usage that names no model an empty one.
    """
    keys = _KEYS[by]
    query = sa.select(*keys, *_SUMS).where(usage_days.c.day >= since).group_by(*keys).limit(limit)
    hidden = [each for each in without if each is not None]
    if hidden:
        query = query.where(usage_days.c.project_id.is_(None) | usage_days.c.project_id.not_in(hidden))
    if by == "day":
        query = query.order_by(usage_days.c.day.desc())
    else:
        query = query.order_by(sa.desc("cost_microusd"), sa.desc("output_tokens"), sa.desc("wall_ms"), *keys)
    return [
        Spent(
            tuple(row[key.name] for key in keys),
            Usage(**{name: int(row[name]) for name in _MEASURES}),
        )
        for row in tx.connection.execute(query).mappings()
    ]


def usage_report(
    tx: Transaction, days: int, *, hidden: Callable[[Iterable[Any]], Collection[Any]] = lambda _projects: ()
) -> dict[str, Any]:
    """Everything that was used in the last `days` days, without the projects that are `hidden` of those it names."""
    since = today(tx) - min(days, _MOST_DAYS) + 1
    projects = spent(tx, "project", since=since, limit=1000)
    without = hidden(each.key[0] for each in projects)
    by_day = spent(tx, "day", since=since, without=without, limit=_MOST_DAYS)
    by_engine = spent(tx, "engine", since=since, without=without)
    by_run = spent(tx, "run", since=since, without=without, limit=_ROWS)
    return {
        "period": [_date(day) for day in range(since, today(tx) + 1)],
        "total": _sum(by_day),
        "known_cost_usd": sum(each.usage.cost_usd for each in by_day),
        "replayed": _sum([each for each in by_engine if _is_replayed(each)]),
        "unpriced": _sum([each for each in by_engine if not _is_priced(each)]),
        "by_day": [{"day": _date(each.key[0]), **_record(each.usage)} for each in by_day],
        "by_engine": [
            {
                "engine": each.key[0],
                "model": each.key[1] or None,
                "simulated": _is_replayed(each),
                "priced": _is_priced(each),
                **_record(each.usage),
            }
            for each in by_engine
        ],
        "by_run": [_of_run(tx, each) for each in by_run],
        "by_project": [
            {"project_id": each.key[0], **_record(each.usage)}
            for each in projects[:_ROWS]
            if each.key[0] is not None and each.key[0] not in without
        ],
    }


def _of_run(tx: Transaction, each: Spent) -> dict[str, Any]:
    if each.key[0] == 0:
        return {"run_id": None, "kind": None, "name": "no run", "simulated": False, **_record(each.usage)}
    run = get_run(tx, each.key[0])
    simulated = run.simulated or run.used_recording
    return {
        "run_id": run.id,
        "kind": run.kind,
        "name": run.name,
        "simulated": simulated,
        **_record(each.usage),
    }


def _record(used: Usage) -> dict[str, Any]:
    """What was used. A cost of which a part is unknown is null."""
    return {name: getattr(used, name) for name in _SHOWN} | {"cost_usd": used.whole_cost_usd}


def _sum(found: Sequence[Spent]) -> dict[str, Any]:
    return _record(sum((each.usage for each in found), Usage()))


def _is_replayed(each: Spent) -> bool:
    """Whether a recording was played: nobody was paid for it."""
    return bool(str(each.key[0]).partition(":")[0] == _REPLAYED)


def _is_priced(each: Spent) -> bool:
    """Whether money is known where tokens were used."""
    return each.usage.unpriced_tokens == 0 or _is_replayed(each)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()


def budget_standings(
    tx: Transaction, scope: Scope, scope_ids: Sequence[int], defaults: Budgets
) -> list[BudgetStanding]:
    """How those of them stand that have any limit, their own or a configured one."""
    own = sa.select(budgets).where(budgets.c.scope == scope, budgets.c.scope_id.in_(scope_ids))
    rows = {row["scope_id"]: row for row in tx.connection.execute(own).mappings()} if scope_ids else {}
    used = totals(tx, scope, scope_ids)
    standings = []
    for number in dict.fromkeys(scope_ids):
        limits, policy = defaults.limits.get(scope, Limits()), defaults.policy
        if number in rows:
            row = rows[number]
            limits = Limits(**{each.name: row[each.name] for each in fields(Limits)})
            policy = BudgetPolicy(row["policy"]) if row["policy"] else policy
        if limits != Limits():
            standings.append(BudgetStanding(scope, number, limits, policy, used[number]))
    return standings
