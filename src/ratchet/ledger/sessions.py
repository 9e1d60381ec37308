"""Sessions: each use of an engine, its cost and transcript; and the stages that an attempt has finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import NotFound, Usage
from ratchet.ledger.tables import attempts, sessions, stages
from ratchet.ledger.transaction import Transaction

_INSERT = sa.insert(sessions).returning(sessions.c.id)
_USAGE = tuple(each.name for each in fields(Usage))


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: int
    run_id: int | None
    attempt_id: int | None
    role: str
    engine: str
    model: str | None
    failure: str | None
    reason: str | None
    resume: str | None
    transcript: str | None
    simulated: bool
    usage: Usage
    at: int


def add_session(
    tx: Transaction,
    *,
    role: str,
    engine: str,
    usage: Usage,
    run_id: int | None = None,
    attempt_id: int | None = None,
    model: str | None = None,
    failure: str | None = None,
    reason: str | None = None,
    resume: str | None = None,
    transcript: str | None = None,
    simulated: bool = False,
) -> int:
    """Record a session that has ended, well or not. `transcript` is the hash of its artifact."""
    row: dict[str, Any] = {
        "run_id": run_id,
        "attempt_id": attempt_id,
        "role": role,
        "engine": engine,
        "model": model,
        "failure": failure,
        "reason": reason,
        "resume": resume,
        "transcript": transcript,
        "simulated": simulated,
        "at": tx.now,
        **usage.measures(),
    }
    number: int = tx.connection.execute(_INSERT, row).scalar_one()
    tx.event(
        "session.failed" if failure else "session.ended",
        run_id=run_id,
        attempt_id=attempt_id,
        message=reason,
        data={"session": number, "role": role, "engine": engine, "failure": failure, "simulated": simulated},
    )
    return number


def get_session(tx: Transaction, session_id: int) -> SessionRow:
    row = tx.connection.execute(sa.select(sessions).where(sessions.c.id == session_id)).mappings().first()
    if row is None:
        raise NotFound("session", session_id)
    return _session(row)


def list_sessions(
    tx: Transaction,
    *,
    run_id: int | None = None,
    attempt_id: int | None = None,
    engine: str | None = None,
    failed: bool = False,
    before: int | None = None,
    limit: int = 50,
) -> list[SessionRow]:
    """Sessions, newest first, a page at a time; with `failed` only those that failed."""
    query = sa.select(sessions).order_by(sessions.c.id.desc()).limit(limit)
    wanted = {"run_id": run_id, "attempt_id": attempt_id, "engine": engine}
    query = query.where(*(sessions.c[name] == value for name, value in wanted.items() if value is not None))
    if failed:
        query = query.where(sessions.c.failure.is_not(None))
    if before is not None:
        query = query.where(sessions.c.id < before)
    return [_session(row) for row in tx.connection.execute(query).mappings()]


def of_attempts(tx: Transaction, attempt_ids: Sequence[int]) -> list[SessionRow]:
    """Those of several attempts, oldest first."""
    if not attempt_ids:
        return []
    query = sa.select(sessions).where(sessions.c.attempt_id.in_(attempt_ids)).order_by(sessions.c.id)
    return [_session(row) for row in tx.connection.execute(query).mappings()]


def _session(row: sa.RowMapping) -> SessionRow:
    plain = {name: value for name, value in row.items() if name not in _USAGE}
    return SessionRow(**plain, usage=Usage(**{name: row[name] for name in _USAGE}))


_INSERT_STAGE = sa.insert(stages)
_OF_STEP = (
    sa.select(stages.c.data)
    .join(attempts, attempts.c.id == stages.c.attempt_id)
    .where(attempts.c.step_id == sa.bindparam("step"), stages.c.name == sa.bindparam("wanted"))
    .order_by(attempts.c.number)
)
_OF_ATTEMPT = sa.select(stages.c.name, stages.c.data).where(stages.c.attempt_id == sa.bindparam("attempt"))


def finish_stage(tx: Transaction, attempt_id: int, name: str, data: Any) -> None:
    """Record that the attempt has finished the stage `name`, with what the next ones need of it."""
    tx.connection.execute(_INSERT_STAGE, {"attempt_id": attempt_id, "name": name, "at": tx.now, "data": data})


def finished_stages(tx: Transaction, attempt_id: int) -> dict[str, Any]:
    """What each finished stage left."""
    return {row.name: row.data for row in tx.connection.execute(_OF_ATTEMPT, {"attempt": attempt_id})}


def stages_of_step(tx: Transaction, step_id: int, name: str) -> list[Any]:
    """What the stage `name` left in each attempt at a step that has finished it, in order."""
    return list(tx.connection.execute(_OF_STEP, {"step": step_id, "wanted": name}).scalars())
