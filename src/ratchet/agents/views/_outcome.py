"""What a creation or a feedback has come to, for whoever asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agents.views.agent import one_agent
from ratchet.agents.views.runs import run_record
from ratchet.kernel import NotFound
from ratchet.ledger.agents import find_version, get_agent
from ratchet.ledger.runs import get_run

if TYPE_CHECKING:
    from ratchet.config.agent_settings import Agents
    from ratchet.ledger import Run, Transaction


def outcome(tx: Transaction, home: Path, settings: Agents, run_id: int) -> dict[str, Any]:
    """The run, the version that it began from, and the agent as it is now; no agent if that was deleted meanwhile."""
    run = get_run(tx, run_id)
    try:
        agent = one_agent(tx, home, settings, run.name)
    except NotFound:
        agent = None
    return {**run_record(run), "from_version": agent and _before(tx, run), "agent": agent}


def _before(tx: Transaction, run: Run) -> str | None:
    """The number of the version that the run's own version was made from."""
    agent_id = get_agent(tx, run.name).id
    commit = run.result.get("commit") if isinstance(run.result, dict) else None
    made = find_version(tx, agent_id, commit) if commit else None
    parent = find_version(tx, agent_id, made.parent) if made is not None and made.parent else None
    return None if parent is None else parent.version
