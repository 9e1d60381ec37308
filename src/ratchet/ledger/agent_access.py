"""Who may use an agent, what its servers may connect to, and the secrets that they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Conflict, NotFound
from ratchet.ledger.agents import AgentRow, AgentStatus
from ratchet.ledger.tables import agent_keys, agent_secrets, agents
from ratchet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class AgentKey:
    """What is known of a key: `hash` is that of its secret part, which is kept nowhere."""

    id: int
    agent_id: int
    name: str
    scopes: Any
    hash: str
    created_by: str
    created_at: int


def add_key(
    tx: Transaction, agent: AgentRow, name: str, *, scopes: Sequence[str], hash: str, by: str
) -> AgentKey:
    """Raises `Conflict` if it has a key of that name."""
    row = {
        "agent_id": agent.id,
        "name": name,
        "scopes": list(scopes),
        "hash": hash,
        "created_by": by,
        "created_at": tx.now,
    }
    try:
        made = tx.connection.execute(sa.insert(agent_keys).values(**row).returning(agent_keys))
    except exc.IntegrityError as error:
        raise Conflict(
            f"agent {agent.name} has a key {name!r} already",
            hint="choose another name, or revoke that one first",
        ) from error
    data = {"agent": agent.name, "key": name, "scopes": list(scopes)}
    tx.event("agent.key", message=f"{agent.name} {name} added", data=data)
    return AgentKey(**made.mappings().one())


def list_keys(tx: Transaction, agent_id: int) -> list[AgentKey]:
    query = sa.select(agent_keys).where(agent_keys.c.agent_id == agent_id).order_by(agent_keys.c.id)
    return [AgentKey(**row) for row in tx.connection.execute(query).mappings()]


def remove_key(tx: Transaction, agent: AgentRow, name: str) -> AgentKey:
    """Raises `NotFound`."""
    named = (agent_keys.c.agent_id == agent.id) & (agent_keys.c.name == name)
    removed = tx.connection.execute(sa.delete(agent_keys).where(named).returning(agent_keys))
    row = removed.mappings().one_or_none()
    if row is None:
        raise NotFound("key", name)
    tx.event("agent.key", message=f"{agent.name} {name} revoked", data={"agent": agent.name, "key": name})
    return AgentKey(**row)


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key with the name of the agent that it opens."""

    agent: str
    scopes: tuple[str, ...]
    hash: str


def find_key(tx: Transaction, key_id: int) -> KnownKey | None:
    """The key of that number, if its agent is not deleted."""
    query = (
        sa.select(agents.c.name, agent_keys.c.scopes, agent_keys.c.hash)
        .join(agents, agents.c.id == agent_keys.c.agent_id)
        .where(agent_keys.c.id == key_id, agents.c.status != AgentStatus.DELETED)
    )
    row = tx.connection.execute(query).one_or_none()
    return None if row is None else KnownKey(row.name, tuple(row.scopes), row.hash)


def egress_of(tx: Transaction, name: str) -> tuple[str, ...]:
    """What the servers of the agent of that name may connect to; nothing, if there is none."""
    living = (agents.c.name == name) & (agents.c.status != AgentStatus.DELETED)
    return tuple(tx.connection.execute(sa.select(agents.c.egress).where(living)).scalar() or ())


def set_egress(tx: Transaction, agent: AgentRow, targets: Sequence[str]) -> None:
    of_agent = sa.update(agents).where(agents.c.id == agent.id)
    tx.connection.execute(of_agent.values(egress=list(targets), updated_at=tx.now))
    data = {"agent": agent.name, "egress": list(targets)}
    tx.event("agent.egress", message=f"{agent.name} {', '.join(targets) or 'nothing'}", data=data)


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """`value` is encrypted."""

    name: str
    value: str
    updated_at: int


def put_sealed(tx: Transaction, agent: AgentRow, name: str, value: str) -> None:
    """Keep a secret, in place of the one of that name."""
    kept = {"value": value, "updated_at": tx.now}
    insert = tx.insert(agent_secrets).values(agent_id=agent.id, name=name, **kept)
    tx.connection.execute(insert.on_conflict_do_update(index_elements=["agent_id", "name"], set_=kept))
    tx.event("agent.secret", message=f"{agent.name} {name} set", data={"agent": agent.name, "secret": name})


def sealed_secrets(tx: Transaction, agent_id: int) -> list[SealedSecret]:
    query = sa.select(agent_secrets.c.name, agent_secrets.c.value, agent_secrets.c.updated_at)
    found = tx.connection.execute(query.where(agent_secrets.c.agent_id == agent_id))
    return sorted((SealedSecret(*row) for row in found), key=lambda each: each.name)


def remove_sealed(tx: Transaction, agent: AgentRow, name: str) -> None:
    """Raises `NotFound`."""
    named = (agent_secrets.c.agent_id == agent.id) & (agent_secrets.c.name == name)
    if not tx.connection.execute(sa.delete(agent_secrets).where(named)).rowcount:
        raise NotFound("secret", name)
    tx.event(
        "agent.secret", message=f"{agent.name} {name} removed", data={"agent": agent.name, "secret": name}
    )
