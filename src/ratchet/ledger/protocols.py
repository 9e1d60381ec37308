"""Protocols: what a run of that kind has besides its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Conflict, NotFound, ProjectId, RunId, RunStatus
from ratchet.ledger.tables import protocols, runs
from ratchet.ledger.transaction import Transaction

_OF_RUN = ("status", "reason", "simulated", "used_recording", "created_at", "updated_at", "ended_at")
_ROW = sa.select(protocols, *(runs.c[name] for name in _OF_RUN)).join(runs, runs.c.id == protocols.c.run_id)


@dataclass(frozen=True, slots=True)
class Protocol:
    """A planned stream of work on a project, with where its run stands."""

    run_id: RunId
    project_id: ProjectId
    number: int | None
    name: str
    description: str | None
    base_branch: str
    base_commit: str | None
    worktree_path: str | None
    protocol_root: str | None
    automatic: bool
    template_config: Any
    template_source: Any
    spec: Any
    spec_hash: str | None
    spec_status: str | None
    spec_errors: Any
    spec_validated_at: int | None
    pushed: str | None
    pull_request: Any
    status: RunStatus
    reason: str | None
    simulated: bool
    used_recording: bool
    created_at: int
    updated_at: int
    ended_at: int | None

    @property
    def ref(self) -> str:
        """The branch that its kept steps are on, as a full name."""
        return f"refs/heads/{self.name}"

    @property
    def root(self) -> str:
        """Its folder in its repository."""
        return self.protocol_root or f".protocols/{self.name}"

    @property
    def rests_on_recording(self) -> bool:
        """Whether it used a recording without being a simulation, so that it can never be completed."""
        return self.used_recording and not self.simulated


def add_protocol(
    tx: Transaction, run_id: int, project_id: int, name: str, *, base_branch: str, **more: Any
) -> None:
    """Say that a run is a protocol. Raises `Conflict` when the project has one of that name."""
    values = {"automatic": True, **more}
    row = {"run_id": run_id, "project_id": project_id, "name": name, "base_branch": base_branch, **values}
    try:
        with tx.connection.begin_nested():
            tx.connection.execute(sa.insert(protocols).values(**row))
    except exc.IntegrityError as error:
        raise Conflict(f"the project has a protocol {name!r} already", hint="take another name") from error


def change_protocol(tx: Transaction, run_id: int, **values: Any) -> None:
    """Set columns of a protocol that are no status."""
    changed = tx.connection.execute(sa.update(protocols).where(protocols.c.run_id == run_id).values(**values))
    if not changed.rowcount:
        raise NotFound("protocol", run_id)


def get_protocol(tx: Transaction, run_id: int) -> Protocol:
    """Raises `NotFound`, also for a run of another kind."""
    row = tx.connection.execute(_ROW.where(protocols.c.run_id == run_id)).mappings().first()
    if row is None:
        raise NotFound("protocol", run_id)
    return _protocol(row)


def is_protocol(tx: Transaction, run_id: int) -> bool:
    found = sa.select(protocols.c.run_id).where(protocols.c.run_id == run_id)
    return tx.connection.execute(found).first() is not None


def find_protocol(tx: Transaction, project_id: int, name: str) -> Protocol | None:
    """The project's protocol of that name, which is also its branch."""
    wanted = _ROW.where(protocols.c.project_id == project_id, protocols.c.name == name)
    row = tx.connection.execute(wanted).mappings().first()
    return None if row is None else _protocol(row)


def protocols_called(tx: Transaction, name: str, *, project_id: int | None = None) -> list[Protocol]:
    """The protocols of that name in all projects, or in one, newest first."""
    wanted = _ROW.where(protocols.c.name == name).order_by(protocols.c.run_id.desc())
    if project_id is not None:
        wanted = wanted.where(protocols.c.project_id == project_id)
    return [_protocol(row) for row in tx.connection.execute(wanted).mappings()]


def list_protocols(
    tx: Transaction,
    *,
    project_id: int | None = None,
    before: int | None = None,
    limit: int = 100,
    unfinished: bool = False,
    status: RunStatus | None = None,
) -> list[Protocol]:
    """Newest first, a page below `before`; with `unfinished` only those whose run has not ended."""
    wanted = _ROW.order_by(protocols.c.run_id.desc()).limit(limit)
    if project_id is not None:
        wanted = wanted.where(protocols.c.project_id == project_id)
    if before is not None:
        wanted = wanted.where(protocols.c.run_id < before)
    if unfinished:
        wanted = wanted.where(runs.c.status.in_([str(status) for status in RunStatus if not status.final]))
    if status is not None:
        wanted = wanted.where(runs.c.status == str(status))
    return [_protocol(row) for row in tx.connection.execute(wanted).mappings()]


def highest_number(tx: Transaction, project_id: int) -> int:
    """The highest NNNN that a protocol of the project has; 0 without any."""
    highest = sa.select(sa.func.max(protocols.c.number)).where(protocols.c.project_id == project_id)
    return tx.connection.execute(highest).scalar() or 0


def _protocol(row: sa.RowMapping) -> Protocol:
    return Protocol(**{**row, "status": RunStatus(row["status"])})
