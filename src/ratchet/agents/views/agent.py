"""Agents as they are shown: what each is for, where its address leads, and what happened to it last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agents.addresses import addresses
from ratchet.agents.place import place_of
from ratchet.agents.views._versions import version_record
from ratchet.agents.views.runs import agent_runs
from ratchet.agents.views.words import bounded
from ratchet.kernel import iso
from ratchet.ledger.agents import Agent, AgentVersion, current_versions, get_agent, list_agents, with_blocked

if TYPE_CHECKING:
    from ratchet.config.agent_settings import Agents
    from ratchet.ledger import Transaction

_LAST_RUNS = 5


def agents(tx: Transaction, *, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
    """Agents by their names, those after `after`."""
    found = with_blocked(tx, list_agents(tx, after=after, limit=limit))
    current = current_versions(tx, found)
    return [agent_record(agent, current.get(agent.id)) for agent in found]


def one_agent(tx: Transaction, home: Path, settings: Agents, name: str) -> dict[str, Any]:
    """An agent with its current version, where it answers, where it lies, and its last runs. Raises `NotFound`."""
    [agent] = with_blocked(tx, [get_agent(tx, name)])
    current = current_versions(tx, [agent]).get(agent.id)
    return {
        **agent_record(agent, current),
        "address": addresses(home, settings, name),
        "directory": str(place_of(home, name).root),
        "current": None if current is None else version_record(current, agent),
        "runs": agent_runs(tx, name, limit=_LAST_RUNS),
    }


def agent_record(agent: Agent, current: AgentVersion | None) -> dict[str, Any]:
    """An agent as JSON. `version` and `commit` are those of the version that its address leads to."""
    return {
        "name": agent.name,
        "description": bounded(agent.description),
        "status": str(agent.status),
        "reason": bounded(agent.reason),
        "version": None if current is None else current.version,
        "commit": agent.current,
        "pinned": agent.pinned,
        "engine": agent.engine,
        "model": agent.model,
        "simulated": agent.simulated,
        "created_at": iso(agent.created_at),
        "updated_at": iso(agent.updated_at),
    }
