"""What judges an agent and belongs to its user: evals, and the calls that clients really made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import NotFound
from ratchet.ledger.tables import agent_calls, agent_evals
from ratchet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class AgentEval:
    """A call, and what its answer must be. `call_id` is the recorded call that it was made from."""

    id: int
    agent_id: int
    server: str
    tool: str
    arguments: Any
    expect: Any
    note: str | None
    call_id: int | None
    created_by: str
    created_at: int


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call as a client made it, and what came of it: `ok`, `failed` when the tool said so, or `error`.

    One that is not whole had something hidden or cut, so that it cannot be made again.
    """

    id: int
    agent_id: int
    commit: str
    server: str
    tool: str
    arguments: Any
    result: Any
    outcome: str
    milliseconds: int
    is_whole: bool
    created_at: int


def add_eval(
    tx: Transaction,
    agent_id: int,
    *,
    server: str,
    tool: str,
    arguments: Mapping[str, Any],
    expect: Mapping[str, Any],
    by: str,
    note: str | None = None,
    call_id: int | None = None,
) -> AgentEval:
    row = {
        "agent_id": agent_id,
        "server": server,
        "tool": tool,
        "arguments": dict(arguments),
        "expect": dict(expect),
        "note": note,
        "call_id": call_id,
        "created_by": by,
        "created_at": tx.now,
    }
    insert = sa.insert(agent_evals).values(**row).returning(agent_evals)
    return AgentEval(**tx.connection.execute(insert).mappings().one())


def list_evals(tx: Transaction, agent_id: int) -> list[AgentEval]:
    """In the order in which they were added, which is the one in which they are made."""
    query = sa.select(agent_evals).where(agent_evals.c.agent_id == agent_id).order_by(agent_evals.c.id)
    return [AgentEval(**row) for row in tx.connection.execute(query).mappings()]


def remove_eval(tx: Transaction, agent_id: int, eval_id: int) -> AgentEval:
    """Raises `NotFound`."""
    of_agent = (agent_evals.c.agent_id == agent_id) & (agent_evals.c.id == eval_id)
    removed = tx.connection.execute(sa.delete(agent_evals).where(of_agent).returning(agent_evals))
    row = removed.mappings().one_or_none()
    if row is None:
        raise NotFound("eval", eval_id)
    return AgentEval(**row)


def add_calls(tx: Transaction, calls: Sequence[Mapping[str, Any]]) -> None:
    """Record calls, each with the columns of its row but its number."""
    if calls:
        tx.connection.execute(sa.insert(agent_calls), [dict(each) for each in calls])


def list_calls(
    tx: Transaction, agent_id: int, *, before: int | None = None, limit: int = 50, tool: str | None = None
) -> list[RecordedCall]:
    """Newest first."""
    query = sa.select(agent_calls).where(agent_calls.c.agent_id == agent_id)
    if before is not None:
        query = query.where(agent_calls.c.id < before)
    if tool is not None:
        query = query.where(agent_calls.c.tool == tool)
    found = tx.connection.execute(query.order_by(agent_calls.c.id.desc()).limit(limit))
    return [RecordedCall(**row) for row in found.mappings()]


def get_call(tx: Transaction, agent_id: int, call_id: int) -> RecordedCall:
    """Raises `NotFound`."""
    of_agent = (agent_calls.c.agent_id == agent_id) & (agent_calls.c.id == call_id)
    row = tx.connection.execute(sa.select(agent_calls).where(of_agent)).mappings().one_or_none()
    if row is None:
        raise NotFound("call", call_id)
    return RecordedCall(**row)


def forget_calls(tx: Transaction, agent_id: int, *, keep: int) -> None:
    """Forget all but the newest `keep` calls of an agent."""
    newest = (
        sa.select(agent_calls.c.id)
        .where(agent_calls.c.agent_id == agent_id)
        .order_by(agent_calls.c.id.desc())
        .offset(keep)
        .limit(1)
    )
    last = tx.connection.execute(newest).scalar_one_or_none()
    if last is not None:
        older = (agent_calls.c.agent_id == agent_id) & (agent_calls.c.id <= last)
        tx.connection.execute(sa.delete(agent_calls).where(older))
