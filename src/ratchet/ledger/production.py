"""What production shows of agents: their calls counted, what went wrong, what callers remarked, and split traffic.

Every table has a bound for each agent, so that what is written and read costs the same after a million calls.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, NotFound
from ratchet.ledger.agents import AgentRow, AgentStatus
from ratchet.ledger.tables import (
    agent_call_totals,
    agent_feedback,
    agent_incidents,
    agent_traffic,
    agent_versions,
    agents,
)
from ratchet.ledger.transaction import Transaction, upsert

CALL_BUCKETS_MS = (10, 25, 50, 100, 250, 1_000, 5_000, 30_000)
_BUCKETS = tuple(f"le_{each}" for each in CALL_BUCKETS_MS)
_COUNTS = ("calls", "failed", "errors", "milliseconds", *_BUCKETS)
_SHOWN = ("commit", "server", "tool", "calls", "failed", "errors", "milliseconds")
_KEY = ("agent_id", "commit", "server", "tool")
# Pairs of a version and a tool that are counted apart; those that were called longest ago go first.
_MOST_TOTALS = 500
_MOST_INCIDENTS = 200
# A caller may choose the words of an error: beyond these, what goes wrong with one tool is one incident.
_MOST_OF_TOOL = 30
_MOST_VERSIONS = 20
_MOST_REMARKS = 200


@dataclass(frozen=True, slots=True)
class CallTotals:
    """How often a tool of a version was called. `buckets` has the calls that took at most so long, see
    `CALL_BUCKETS_MS`; `failed` are those that the tool refused or failed, `errors` those without an answer."""

    agent: str
    version: str
    commit: str
    server: str
    tool: str
    calls: int
    failed: int
    errors: int
    milliseconds: int
    buckets: tuple[int, ...]

    def __add__(self, other: CallTotals) -> CallTotals:
        return CallTotals(
            self.agent,
            self.version,
            self.commit,
            self.server,
            self.tool,
            self.calls + other.calls,
            self.failed + other.failed,
            self.errors + other.errors,
            self.milliseconds + other.milliseconds,
            tuple(a + b for a, b in zip(self.buckets, other.buckets, strict=True)),
        )

    def within_ms(self, share: float) -> int | None:
        """In how many milliseconds, at most, this share of the calls ended; None if that is above every bucket."""
        wanted = share * self.calls
        return next(
            (bound for bound, count in zip(CALL_BUCKETS_MS, self.buckets, strict=True) if count >= wanted),
            None,
        )


_ADD = upsert(
    agent_call_totals,
    _KEY,
    lambda new: {
        **{name: agent_call_totals.c[name] + new[name] for name in _COUNTS},
        "updated_at": new.updated_at,
    },
)


def count_calls(tx: Transaction, agent_id: int, calls: Iterable[Mapping[str, Any]]) -> None:
    """Add calls to the totals; each has `commit`, `server`, `tool`, `outcome` and `milliseconds`."""
    sums: dict[tuple[str, str, str], dict[str, int]] = {}
    for call in calls:
        key = (call["commit"], call["server"], call["tool"])
        row = sums.setdefault(key, dict.fromkeys(_COUNTS, 0))
        row["calls"] += 1
        row["failed"] += call["outcome"] == "failed"
        row["errors"] += call["outcome"] == "error"
        row["milliseconds"] += call["milliseconds"]
        for name in _BUCKETS[bisect.bisect_left(CALL_BUCKETS_MS, call["milliseconds"]) :]:
            row[name] += 1
    for (commit, server, tool), row in sorted(sums.items()):
        values = {
            "agent_id": agent_id,
            "commit": commit,
            "server": server,
            "tool": tool,
            "updated_at": tx.now,
        }
        tx.connection.execute(_ADD(tx.dialect), {**values, **row})
    _forget(tx, agent_call_totals, agent_call_totals.c.updated_at, agent_id, _MOST_TOTALS)


def call_totals(
    tx: Transaction, agent_id: int | None = None, *, limit: int = _MOST_TOTALS
) -> list[CallTotals]:
    """The totals of one agent, or of all that there are, those called lately first."""
    query = (
        sa.select(agents.c.name, agent_versions.c.version, agent_call_totals)
        .join(agents, agents.c.id == agent_call_totals.c.agent_id)
        .join(
            agent_versions,
            (agent_versions.c.agent_id == agent_call_totals.c.agent_id)
            & (agent_versions.c.commit == agent_call_totals.c.commit),
        )
        .where(agents.c.status != str(AgentStatus.DELETED))
        .order_by(agent_call_totals.c.updated_at.desc(), agent_call_totals.c.id.desc())
        .limit(limit)
    )
    if agent_id is not None:
        query = query.where(agent_call_totals.c.agent_id == agent_id)
    return [
        CallTotals(
            agent=row["name"],
            version=row["version"],
            buckets=tuple(row[name] for name in _BUCKETS),
            **{key: row[key] for key in _SHOWN},
        )
        for row in tx.connection.execute(query).mappings()
    ]


def version_calls(tx: Transaction, agent_id: int, commit: str) -> tuple[int, int]:
    """How many calls of a version were made, and how many of those went wrong."""
    columns = agent_call_totals.c
    query = sa.select(sa.func.sum(columns.calls), sa.func.sum(columns.failed + columns.errors)).where(
        columns.agent_id == agent_id, columns.commit == commit
    )
    calls, wrong = tx.connection.execute(query).one()
    return int(calls or 0), int(wrong or 0)


class IncidentStatus(StrEnum):
    """`proposed` has a run that is to fix it, `resolved` a version that was promoted for it."""

    OPEN = "open"
    PROPOSED = "proposed"
    RESOLVED = "resolved"
    DISMISSED = "dismissed"


@dataclass(frozen=True, slots=True)
class Incident:
    """Calls that went wrong in the same way, with the input of one. `versions` are commits, the newest last.

    `kind` is `failed` where the tool said so, `error` where no answer came, and `drift` for an eval that a version in
    use does not answer any more; `expect` is what that eval wants.
    """

    id: int
    agent_id: int
    fingerprint: str
    kind: str
    server: str
    tool: str
    message: str
    arguments: Any
    expect: Any
    is_whole: bool
    count: int
    versions: Any
    first_at: int
    last_at: int
    status: IncidentStatus
    run_id: int | None


def note_incident(
    tx: Transaction, agent: AgentRow, fingerprints: Sequence[str], *, at_commit: str, **found: Any
) -> Incident:
    """Count a call that went wrong. An incident that was resolved is open again if another version has it.

    `fingerprints` are its own, and the one that it goes by where the tool has very many incidents already.
    """
    own, common = fingerprints
    known = _locked_incident(tx, agent.id, own)
    columns = agent_incidents.c
    if known is None and own != common:
        of_tool = (
            (columns.agent_id == agent.id)
            & (columns.tool == found["tool"])
            & (columns.server == found["server"])
        )
        count = tx.connection.execute(sa.select(sa.func.count()).where(of_tool)).scalar_one()
        own = common if count >= _MOST_OF_TOOL else own
        known = _locked_incident(tx, agent.id, own)
    if known is None:
        row = {
            **found,
            "agent_id": agent.id,
            "fingerprint": own,
            "count": 1,
            "versions": [at_commit],
            "first_at": tx.now,
            "last_at": tx.now,
            "status": str(IncidentStatus.OPEN),
        }
        insert = sa.insert(agent_incidents).values(**row).returning(columns.id)
        made = get_incident(tx, agent.id, tx.connection.execute(insert).scalar_one())
        _forget(tx, agent_incidents, columns.last_at, agent.id, _MOST_INCIDENTS)
        _say_incident(tx, agent, made)
        return made
    # An older version may still be in use after the one that fixed it.
    back = known.status is IncidentStatus.RESOLVED and at_commit not in known.versions
    values: dict[str, Any] = {"count": columns.count + 1, "last_at": tx.now}
    if at_commit not in known.versions:
        values["versions"] = [*known.versions, at_commit][-_MOST_VERSIONS:]
    if back:
        values |= {"status": str(IncidentStatus.OPEN), "run_id": None}
    if found["is_whole"] and not known.is_whole:
        values |= {"arguments": found["arguments"], "is_whole": True}
    tx.connection.execute(sa.update(agent_incidents).where(columns.id == known.id).values(**values))
    now = get_incident(tx, agent.id, known.id)
    if back:
        _say_incident(tx, agent, now)
    return now


def _say_incident(tx: Transaction, agent: AgentRow, incident: Incident) -> None:
    data = {"agent": agent.name, "incident": incident.id, "tool": incident.tool, "kind": incident.kind}
    tx.event("agent.incident", message=f"{agent.name} {incident.tool}: {incident.message[:300]}", data=data)


def _locked_incident(tx: Transaction, agent_id: int, fingerprint: str) -> Incident | None:
    query = sa.select(agent_incidents).where(
        agent_incidents.c.agent_id == agent_id, agent_incidents.c.fingerprint == fingerprint
    )
    row = tx.connection.execute(query.with_for_update()).mappings().one_or_none()
    return None if row is None else _incident(row)


def get_incident(tx: Transaction, agent_id: int, incident_id: int) -> Incident:
    """Raises `NotFound`."""
    query = sa.select(agent_incidents).where(
        agent_incidents.c.agent_id == agent_id, agent_incidents.c.id == incident_id
    )
    row = tx.connection.execute(query).mappings().one_or_none()
    if row is None:
        raise NotFound("incident", incident_id)
    return _incident(row)


def list_incidents(
    tx: Transaction,
    agent_id: int,
    *,
    before: int | None = None,
    limit: int = 50,
    status: IncidentStatus | None = None,
) -> list[Incident]:
    """Newest first."""
    query = sa.select(agent_incidents).where(agent_incidents.c.agent_id == agent_id)
    if before is not None:
        query = query.where(agent_incidents.c.id < before)
    if status is not None:
        query = query.where(agent_incidents.c.status == str(status))
    rows = tx.connection.execute(query.order_by(agent_incidents.c.id.desc()).limit(limit)).mappings()
    return [_incident(row) for row in rows]


def set_incident(
    tx: Transaction, agent: AgentRow, incident_id: int, status: IncidentStatus, *, run_id: int | None = None
) -> Incident:
    """Say what becomes of an incident. Raises `NotFound`."""
    values: dict[str, Any] = {"status": str(status)} | ({} if run_id is None else {"run_id": run_id})
    of_agent = (agent_incidents.c.agent_id == agent.id) & (agent_incidents.c.id == incident_id)
    tx.connection.execute(sa.update(agent_incidents).where(of_agent).values(**values))
    found = get_incident(tx, agent.id, incident_id)
    _say_incident(tx, agent, found)
    return found


def _incident(row: Any) -> Incident:
    return Incident(**{**row, "status": IncidentStatus(row["status"])})


@dataclass(frozen=True, slots=True)
class CallerRemark:
    """What callers said of a version by its Tuner; the same words are one remark. It waits while it has no run."""

    id: int
    agent_id: int
    commit: str
    digest: str
    message: str
    severity: str
    count: int
    created_at: int
    last_at: int
    run_id: int | None


def add_remark(
    tx: Transaction,
    agent_id: int,
    commit: str,
    digest: str,
    *,
    message: str,
    severity: str,
    most: int,
    again_after: int,
) -> CallerRemark:
    """Add a remark, or count one that is known. One that was worked on since `again_after` does not wait again.

    Raises `Conflict` when `most` different ones wait.
    """
    columns = agent_feedback.c
    mine = (columns.agent_id == agent_id) & (columns.commit == commit) & (columns.digest == digest)
    row = tx.connection.execute(sa.select(agent_feedback).where(mine).with_for_update()).mappings().first()
    if row is None:
        waiting = sa.select(sa.func.count()).where(columns.agent_id == agent_id, columns.run_id.is_(None))
        if tx.connection.execute(waiting).scalar_one() >= most:
            raise Conflict(
                f"{most} remarks about this agent wait already",
                hint="they are taken together; say it again when they are worked off",
            )
        values = {"agent_id": agent_id, "commit": commit, "digest": digest, "message": message, "count": 1}
        values |= {"severity": severity, "created_at": tx.now, "last_at": tx.now}
        made = tx.connection.execute(sa.insert(agent_feedback).values(**values).returning(agent_feedback))
        return CallerRemark(**made.mappings().one())
    known = CallerRemark(**row)
    change: dict[str, Any] = {"count": columns.count + 1, "last_at": tx.now}
    if known.run_id is not None and known.last_at < again_after:
        change |= {"run_id": None, "count": 1, "created_at": tx.now}
    updated = sa.update(agent_feedback).where(mine).values(**change).returning(agent_feedback)
    return CallerRemark(**tx.connection.execute(updated).mappings().one())


def waiting_remarks(tx: Transaction, agent_id: int, *, limit: int = _MOST_REMARKS) -> list[CallerRemark]:
    """What is not worked on yet, oldest first."""
    query = sa.select(agent_feedback).where(
        agent_feedback.c.agent_id == agent_id, agent_feedback.c.run_id.is_(None)
    )
    rows = tx.connection.execute(query.order_by(agent_feedback.c.id).limit(limit)).mappings()
    return [CallerRemark(**row) for row in rows]


def list_remarks(
    tx: Transaction, agent_id: int, *, before: int | None = None, limit: int = 50
) -> list[CallerRemark]:
    """Newest first, those that were worked on among them."""
    query = sa.select(agent_feedback).where(agent_feedback.c.agent_id == agent_id)
    if before is not None:
        query = query.where(agent_feedback.c.id < before)
    rows = tx.connection.execute(query.order_by(agent_feedback.c.id.desc()).limit(limit)).mappings()
    return [CallerRemark(**row) for row in rows]


def take_remarks(tx: Transaction, agent_id: int, remarks: Sequence[CallerRemark], run_id: int) -> None:
    """Say which run works on these. Of those that were worked on the newest are kept."""
    numbers = [each.id for each in remarks]
    taken = sa.update(agent_feedback).where(agent_feedback.c.id.in_(numbers)).values(run_id=run_id)
    tx.connection.execute(taken)
    is_done = agent_feedback.c.run_id.is_not(None)
    _forget(tx, agent_feedback, agent_feedback.c.last_at, agent_id, _MOST_REMARKS, is_done)


class TrafficStatus(StrEnum):
    """`asks` is a split that came to no decision: all calls go to the current version until a person decides."""

    RUNNING = "running"
    PROMOTED = "promoted"
    STOPPED = "stopped"
    ASKS = "asks"


@dataclass(frozen=True, slots=True)
class TrafficSplit:
    """A share of new sessions that goes to another version. The `base_…` numbers are calls made before it began."""

    id: int
    agent_id: int
    against: str
    candidate: str
    percent: int
    wanted_calls: int
    margin: float
    looks: int
    base_current: int
    base_current_wrong: int
    base_candidate: int
    base_candidate_wrong: int
    status: TrafficStatus
    reason: str | None
    created_at: int
    ended_at: int | None


_OF_SPLIT = agent_traffic.c


def open_split(tx: Transaction, agent_id: int) -> TrafficSplit | None:
    """The split of an agent that runs or waits for a person."""
    query = sa.select(agent_traffic).where(
        _OF_SPLIT.agent_id == agent_id, _OF_SPLIT.status.in_([TrafficStatus.RUNNING, TrafficStatus.ASKS])
    )
    row = tx.connection.execute(query.order_by(_OF_SPLIT.id.desc()).limit(1)).mappings().first()
    return None if row is None else _split(row)


def begin_split(tx: Transaction, agent: AgentRow, **values: Any) -> TrafficSplit:
    """Split the traffic of an agent; an earlier split of it is over."""
    before = open_split(tx, agent.id)
    if before is not None:
        end_split(tx, agent, before, TrafficStatus.STOPPED, "another split takes its place")
    row = {**values, "agent_id": agent.id, "against": agent.current, "looks": 0}
    row |= {"status": str(TrafficStatus.RUNNING), "created_at": tx.now}
    insert = sa.insert(agent_traffic).values(**row).returning(agent_traffic)
    made = _split(tx.connection.execute(insert).mappings().one())
    _say_split(tx, agent, made)
    _forget(tx, agent_traffic, _OF_SPLIT.id, agent.id, _MOST_VERSIONS)
    return made


def note_look(tx: Transaction, split: TrafficSplit, looks: int) -> None:
    tx.connection.execute(sa.update(agent_traffic).where(_OF_SPLIT.id == split.id).values(looks=looks))


def end_split(
    tx: Transaction, agent: AgentRow, split: TrafficSplit, status: TrafficStatus, reason: str
) -> TrafficSplit:
    """End a split, if no other process has done so. One that asks is open until a person has decided."""
    values = {"status": str(status), "reason": reason, "ended_at": tx.now}
    where = (_OF_SPLIT.id == split.id) & (_OF_SPLIT.status == str(split.status))
    update = sa.update(agent_traffic).where(where).values(**values).returning(agent_traffic)
    row = tx.connection.execute(update).mappings().first()
    if row is None:
        raise Conflict(
            f"the split of the traffic of {agent.name} was ended just now", hint="look at it again"
        )
    _say_split(tx, agent, _split(row))
    return _split(row)


def splits_that_ask(tx: Transaction, *, limit: int) -> list[tuple[str, TrafficSplit]]:
    """The splits that a person must decide on, with their agents."""
    query = (
        sa.select(agents.c.name, agent_traffic)
        .join(agents, agents.c.id == _OF_SPLIT.agent_id)
        .where(_OF_SPLIT.status == str(TrafficStatus.ASKS), agents.c.status != str(AgentStatus.DELETED))
        .where(agents.c.current == _OF_SPLIT.against)
        .order_by(_OF_SPLIT.id)
        .limit(limit)
    )
    rows = tx.connection.execute(query).mappings()
    return [(row["name"], _split({each.name: row[each.name] for each in _OF_SPLIT})) for row in rows]


def open_drift(tx: Transaction, *, limit: int) -> list[tuple[str, Incident]]:
    """The evals that versions in use do not answer any more, with their agents."""
    columns = agent_incidents.c
    query = (
        sa.select(agents.c.name, agent_incidents)
        .join(agents, agents.c.id == columns.agent_id)
        .where(columns.kind == "drift", columns.status == str(IncidentStatus.OPEN))
        .where(agents.c.status != str(AgentStatus.DELETED))
        .order_by(columns.id)
        .limit(limit)
    )
    rows = tx.connection.execute(query).mappings()
    return [(row["name"], _incident({each.name: row[each.name] for each in columns})) for row in rows]


def _say_split(tx: Transaction, agent: AgentRow, split: TrafficSplit) -> None:
    data = {
        "agent": agent.name,
        "candidate": split.candidate,
        "percent": split.percent,
        "status": str(split.status),
        "reason": split.reason,
    }
    message = f"{agent.name} {split.candidate[:12]} {split.percent} % {split.status}"
    tx.event("agent.traffic", message=message, data=data)


def _split(row: Any) -> TrafficSplit:
    return TrafficSplit(**{**row, "status": TrafficStatus(row["status"])})


def _forget(
    tx: Transaction,
    table: sa.Table,
    order: sa.Column[Any],
    agent_id: int,
    keep: int,
    which: sa.ColumnElement[bool] | None = None,
) -> None:
    """Forget all rows of an agent but the last `keep` by `order`."""
    mine = (table.c.agent_id == agent_id) if which is None else (table.c.agent_id == agent_id) & which
    gone = (
        sa.select(table.c.id).where(mine).order_by(order.desc(), table.c.id.desc()).offset(keep).limit(1_000)
    )
    numbers = tx.connection.execute(gone).scalars().all()
    if numbers:
        tx.connection.execute(sa.delete(table).where(table.c.id.in_(numbers)))
