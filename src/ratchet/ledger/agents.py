"""Agents, their versions, and which version an agent's address leads to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Conflict, NotFound, RunStatus, StateChanged, did_you_mean
from ratchet.ledger.tables import agent_versions, agents, runs
from ratchet.ledger.transaction import Transaction

# So many names are compared with one that is not there.
_NEARBY = 1000


class AgentStatus(StrEnum):
    """`failed` is an agent whose creation failed; it may be created again. `blocked` is one that is being created, by a
    run that is blocked or paused: it is shown so, see `with_blocked`, and never stored."""

    CREATING = "creating"
    BLOCKED = "blocked"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"


class VersionStatus(StrEnum):
    """A `quarantined` version has crashed too often to be started again by itself."""

    READY = "ready"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class AgentRow:
    """`current` is the commit that the stable address leads to. While `pinned`, new versions do not move it."""

    id: int
    name: str
    description: str
    status: AgentStatus
    reason: str | None
    current: str | None
    pinned: bool
    engine: str | None
    model: str | None
    simulated: bool
    created_at: int
    updated_at: int
    approval: str | None = None
    """When a person is asked about a change; as the settings say if it is not given."""
    learning: str | None = None
    """Whether incidents become proposals by themselves: `ask` or `auto`; as the settings say if it is not given."""
    egress: Any = None
    """What its servers may connect to."""


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """`version` is the semver in its metadata.json, which variants may share; `tools` are those of its Runner.

    `promoted_at` orders those that were current. It is empty for one that never was, and for one that was taken back.
    """

    id: int
    agent_id: int
    commit: str
    version: str
    parent: str | None
    status: VersionStatus
    reason: str | None
    summary: str
    tools: Any
    run_id: int | None
    simulated: bool
    created_at: int
    promoted_at: int | None
    offers: Any = None
    """What callers may rely on besides the tools: those of the Tuner, resources and prompts."""
    certificate: Any = None
    """What it was promoted on; older versions have none."""


def create_agent(
    tx: Transaction,
    name: str,
    description: str,
    *,
    engine: str | None = None,
    model: str | None = None,
    simulated: bool = False,
) -> AgentRow:
    """A new agent, still to be made. Raises `Conflict` when there is one of that name, unless that failed."""
    tx.connection.execute(
        sa.update(agents)
        .where(agents.c.name == name, agents.c.status == AgentStatus.FAILED)
        .values(status=AgentStatus.DELETED, updated_at=tx.now)
    )
    row = {
        "name": name,
        "description": description,
        "status": AgentStatus.CREATING,
        "pinned": False,
        "engine": engine,
        "model": model,
        "simulated": simulated,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    try:
        tx.connection.execute(sa.insert(agents).values(**row))
    except exc.IntegrityError as error:
        raise Conflict(
            f"there is an agent {name!r} already",
            hint=f"tell it what to do better with `ratchet agent feedback {name}`, or choose another name",
        ) from error
    tx.event("agent.created", message=name, data={"agent": name, "description": description})
    return get_agent(tx, name)


def get_agent(tx: Transaction, name: str) -> AgentRow:
    """The agent of that name that is not deleted. Raises `NotFound`."""
    query = sa.select(agents).where(agents.c.name == name, agents.c.status != AgentStatus.DELETED)
    row = tx.connection.execute(query).one_or_none()
    if row is None:
        absent = NotFound("agent", name)
        living = sa.select(agents.c.name).where(agents.c.status != AgentStatus.DELETED)
        absent.hint = did_you_mean(name, tx.connection.execute(living.limit(_NEARBY)).scalars())
        raise absent
    return _agent(row)


def list_agents(tx: Transaction, *, after: str = "", limit: int = 100) -> list[AgentRow]:
    """Agents by their names."""
    query = sa.select(agents).where(agents.c.status != AgentStatus.DELETED, agents.c.name > after)
    return [_agent(row) for row in tx.connection.execute(query.order_by(agents.c.name).limit(limit))]


def with_blocked(tx: Transaction, found: Sequence[AgentRow]) -> list[AgentRow]:
    """The same agents; those whose creation cannot continue until a person acts are blocked, with run and reason."""
    created = {agent.name: agent for agent in found if agent.status is AgentStatus.CREATING}
    if not created:
        return list(found)
    query = sa.select(runs).where(
        runs.c.kind == "agent",
        runs.c.name.in_(created),
        runs.c.status.in_((RunStatus.BLOCKED, RunStatus.PAUSED)),
    )
    # Runs of an agent of that name that was deleted are older.
    halted = {
        run.name: f"run {run.id} is {run.status}: {run.reason}"
        for run in tx.connection.execute(query)
        if run.created_at >= created[run.name].created_at
    }
    return [
        replace(agent, status=AgentStatus.BLOCKED, reason=halted[agent.name])
        if agent.name in halted and agent.name in created
        else agent
        for agent in found
    ]


def end_creation(tx: Transaction, agent_id: int, *, run_id: int, reason: str | None = None) -> None:
    """Say that an agent is ready, or with a reason that it failed."""
    status = AgentStatus.READY if reason is None else AgentStatus.FAILED
    name = _change(tx, agent_id, AgentStatus.CREATING, status=status, reason=reason)
    tx.event(f"agent.{status}", message=name, run_id=run_id, data={"agent": name, "reason": reason})


def give_up_creation(tx: Transaction, name: str, *, run_id: int, reason: str) -> None:
    """Say that an agent that is still being made failed; any other is left as it is."""
    query = sa.select(agents.c.id).where(agents.c.name == name, agents.c.status == AgentStatus.CREATING)
    for agent_id in tx.connection.execute(query).scalars():
        end_creation(tx, agent_id, run_id=run_id, reason=reason)


def delete_agent(tx: Transaction, agent: AgentRow) -> None:
    """Forget an agent; its name is free again."""
    _change(tx, agent.id, agent.status, status=AgentStatus.DELETED)
    tx.event("agent.deleted", message=agent.name, data={"agent": agent.name})


def set_pinned(tx: Transaction, agent: AgentRow, pinned: bool) -> None:
    """Hold the address where it is, or let it follow new versions again."""
    _change(tx, agent.id, agent.status, pinned=pinned)
    word = "pinned" if pinned else "unpinned"
    tx.event(f"agent.{word}", message=agent.name, data={"agent": agent.name, "commit": agent.current})


def set_approval(tx: Transaction, agent: AgentRow, mode: str | None) -> None:
    """Say when a person is asked about a change; None leaves it to the settings."""
    _change(tx, agent.id, agent.status, approval=mode)
    tx.event("agent.approval", message=f"{agent.name} {mode}", data={"agent": agent.name, "approval": mode})


def set_learning(tx: Transaction, agent: AgentRow, mode: str | None) -> None:
    """Say whether incidents become proposals by themselves; None leaves it to the settings."""
    _change(tx, agent.id, agent.status, learning=mode)
    tx.event("agent.learning", message=f"{agent.name} {mode}", data={"agent": agent.name, "learning": mode})


def add_version(
    tx: Transaction,
    agent: AgentRow,
    commit: str,
    version: str,
    *,
    parent: str | None,
    summary: str,
    tools: Sequence[Any],
    run_id: int | None,
    simulated: bool = False,
    offers: Sequence[Any] | None = None,
    certificate: Any = None,
) -> AgentVersion:
    """Record a version that has passed its checks; one that is known already is only returned."""
    known = find_version(tx, agent.id, commit)
    if known is not None:
        return known
    row = {
        "agent_id": agent.id,
        "commit": commit,
        "version": version,
        "parent": parent,
        "status": VersionStatus.READY,
        "summary": summary,
        "tools": list(tools),
        "run_id": run_id,
        "simulated": simulated,
        "created_at": tx.now,
        "offers": None if offers is None else list(offers),
        "certificate": certificate,
    }
    tx.connection.execute(sa.insert(agent_versions).values(**row))
    told = {"agent": agent.name, "commit": commit, "version": version, "parent": parent, "summary": summary}
    tx.event("agent.version", message=f"{agent.name} {version}", run_id=run_id, data=told)
    return get_version(tx, agent.id, commit)


def find_version(tx: Transaction, agent_id: int, commit: str) -> AgentVersion | None:
    query = sa.select(agent_versions).where(
        agent_versions.c.agent_id == agent_id, agent_versions.c.commit == commit
    )
    row = tx.connection.execute(query).one_or_none()
    return None if row is None else _version(row)


def get_version(tx: Transaction, agent_id: int, commit: str) -> AgentVersion:
    found = find_version(tx, agent_id, commit)
    if found is None:
        raise NotFound("version", commit)
    return found


def list_versions(
    tx: Transaction, agent_id: int, *, before: int | None = None, limit: int = 50
) -> list[AgentVersion]:
    """Versions of an agent, newest first."""
    query = sa.select(agent_versions).where(agent_versions.c.agent_id == agent_id)
    if before is not None:
        query = query.where(agent_versions.c.id < before)
    found = tx.connection.execute(query.order_by(agent_versions.c.id.desc()).limit(limit))
    return [_version(row) for row in found]


def versions_starting(tx: Transaction, agent_id: int, prefix: str, *, limit: int = 10) -> list[AgentVersion]:
    """Versions whose commit begins with `prefix`, which holds only hexadecimal digits."""
    query = sa.select(agent_versions).where(
        agent_versions.c.agent_id == agent_id,
        agent_versions.c.commit >= prefix,
        agent_versions.c.commit < prefix + "g",
    )
    return [_version(row) for row in tx.connection.execute(query.limit(limit))]


def versions_numbered(tx: Transaction, agent_id: int, version: str, *, limit: int = 10) -> list[AgentVersion]:
    """Versions that carry this semver, newest first."""
    query = sa.select(agent_versions).where(
        agent_versions.c.agent_id == agent_id, agent_versions.c.version == version
    )
    found = tx.connection.execute(query.order_by(agent_versions.c.id.desc()).limit(limit))
    return [_version(row) for row in found]


def first_numbered(tx: Transaction, agent_id: int, numbers: Collection[str]) -> dict[str, AgentVersion]:
    """Of each of these semvers the version that carried it first."""
    columns = agent_versions.c
    first = (
        sa.select(sa.func.min(columns.id))
        .where(columns.agent_id == agent_id, columns.version.in_(numbers))
        .group_by(columns.version)
    )
    found = tx.connection.execute(sa.select(agent_versions).where(columns.id.in_(first)))
    return {row.version: _version(row) for row in found}


def current_versions(tx: Transaction, found: Sequence[AgentRow]) -> dict[int, AgentVersion]:
    """The versions that the addresses of these agents lead to, by the agent's number."""
    wanted = [(agent.id, agent.current) for agent in found if agent.current is not None]
    query = sa.select(agent_versions).where(
        sa.tuple_(agent_versions.c.agent_id, agent_versions.c.commit).in_(wanted)
    )
    return {row.agent_id: _version(row) for row in tx.connection.execute(query)}


def line_of(tx: Transaction, agent: AgentRow, *, down_to: int) -> set[str]:
    """The commits that led to the current version, itself among them, as far back as the version numbered `down_to`.

    A version is made from an older one, so that no more of the history is read.
    """
    columns = agent_versions.c
    line = (
        sa.select(columns.commit, columns.parent)
        .where(columns.agent_id == agent.id, columns.commit == agent.current, columns.id >= down_to)
        .cte("line", recursive=True)
    )
    older = sa.select(columns.commit, columns.parent).where(
        columns.agent_id == agent.id, columns.commit == line.c.parent, columns.id >= down_to
    )
    return set(tx.connection.execute(sa.select(line.union(older).c.commit)).scalars())


def last_good(tx: Transaction, agent_id: int, *, other_than: str | None) -> AgentVersion | None:
    """The version that was current most lately and is not quarantined."""
    query = sa.select(agent_versions).where(
        agent_versions.c.agent_id == agent_id,
        agent_versions.c.promoted_at.is_not(None),
        agent_versions.c.status == VersionStatus.READY,
        agent_versions.c.commit != (other_than or ""),
    )
    order = (agent_versions.c.promoted_at.desc(), agent_versions.c.id.desc())
    row = tx.connection.execute(query.order_by(*order).limit(1)).one_or_none()
    return None if row is None else _version(row)


def move_current(
    tx: Transaction,
    agent: AgentRow,
    to: str,
    *,
    expected: str | None,
    why: str,
    reason: str | None = None,
    run_id: int | None = None,
) -> None:
    """Let the address lead to another version, only if it still leads to `expected`. Raises `StateChanged`.

    `why` is the word of the event: `promoted`, `rolled_back` or `fell_back`. One that is rolled back to is where it was
    among those that were current; what came after it no longer counts as having been.
    """
    version = _held_version(tx, agent, to)
    if version.status is VersionStatus.QUARANTINED:
        raise Conflict(
            f"version {to[:12]} of {agent.name} is quarantined: {version.reason}",
            hint="choose another version, or give feedback that fixes it",
        )
    where = agents.c.current.is_(None) if expected is None else agents.c.current == expected
    moved = tx.connection.execute(
        sa.update(agents)
        .where(agents.c.id == agent.id, agents.c.status != AgentStatus.DELETED, where)
        .values(current=to, updated_at=tx.now)
    )
    if moved.rowcount == 0:
        now = tx.connection.execute(sa.select(agents).where(agents.c.id == agent.id)).one()
        if now.status == AgentStatus.DELETED:
            raise NotFound("agent", agent.name)
        raise StateChanged("agent", agent.name, (str(expected),), str(now.current))
    if why == "rolled_back":
        _take_back(tx, version, expected)
    _put_on_top(tx, version)
    told = {"agent": agent.name, "from": expected, "to": to, "version": version.version, "reason": reason}
    tx.event(f"agent.{why}", message=f"{agent.name} {version.version}", run_id=run_id, data=told)


def quarantine_version(tx: Transaction, agent: AgentRow, commit: str, reason: str) -> None:
    """Keep a version from being started by itself. Nothing happens to one that is quarantined already."""
    if _held_version(tx, agent, commit).status is VersionStatus.QUARANTINED:
        return
    _set_version(tx, agent.id, commit, status=VersionStatus.QUARANTINED, reason=reason)
    told = {"agent": agent.name, "commit": commit, "reason": reason}
    tx.event("agent.quarantined", message=f"{agent.name} {commit[:12]}: {reason}", data=told)


def release_version(tx: Transaction, agent: AgentRow, commit: str) -> None:
    """Let a quarantined version be started again, since a person wants it. Nothing happens to one that is not."""
    if _held_version(tx, agent, commit).status is VersionStatus.READY:
        return
    _set_version(tx, agent.id, commit, status=VersionStatus.READY, reason=None)
    told = {"agent": agent.name, "commit": commit}
    tx.event("agent.released", message=f"{agent.name} {commit[:12]}", data=told)


def _held_version(tx: Transaction, agent: AgentRow, commit: str) -> AgentVersion:
    """A version that nobody else moves to or puts into quarantine until the end of the transaction.

    Or it might become current while it is quarantined. Always the agent's row is locked, so nobody waits in a circle.
    """
    row = sa.select(agents.c.id).where(agents.c.id == agent.id)
    tx.connection.execute(row.with_for_update(key_share=True))
    return get_version(tx, agent.id, commit)


def _set_version(tx: Transaction, agent_id: int, commit: str, **values: Any) -> None:
    tx.connection.execute(
        sa.update(agent_versions)
        .where(agent_versions.c.agent_id == agent_id, agent_versions.c.commit == commit)
        .values(**values)
    )


def _take_back(tx: Transaction, to: AgentVersion, current: str | None) -> None:
    after = (
        agent_versions.c.commit == current
        if to.promoted_at is None
        else agent_versions.c.promoted_at > to.promoted_at
    )
    tx.connection.execute(
        sa.update(agent_versions)
        .where(agent_versions.c.agent_id == to.agent_id, after)
        .values(promoted_at=None)
    )


def _put_on_top(tx: Transaction, version: AgentVersion) -> None:
    """Clocks differ and two moves may share a millisecond, but the order in which versions were current must not."""
    last = tx.connection.execute(
        sa.select(sa.func.max(agent_versions.c.promoted_at)).where(
            agent_versions.c.agent_id == version.agent_id, agent_versions.c.promoted_at.is_not(None)
        )
    ).scalar_one()
    now = tx.now if last is None else max(tx.now, last + 1)
    _set_version(tx, version.agent_id, version.commit, promoted_at=now)


def _change(tx: Transaction, agent_id: int, expected: AgentStatus, **values: Any) -> str:
    update = sa.update(agents).where(agents.c.id == agent_id, agents.c.status == expected)
    name = tx.connection.execute(
        update.values(updated_at=tx.now, **values).returning(agents.c.name)
    ).scalar_one_or_none()
    if name is None:
        query = sa.select(agents.c.name, agents.c.status).where(agents.c.id == agent_id)
        found = tx.connection.execute(query).one()
        raise StateChanged("agent", found.name, (expected,), found.status)
    return str(name)


def _agent(row: sa.Row[Any]) -> AgentRow:
    return AgentRow(**{**row._mapping, "status": AgentStatus(row.status)})


def _version(row: sa.Row[Any]) -> AgentVersion:
    return AgentVersion(**{**row._mapping, "status": VersionStatus(row.status)})
