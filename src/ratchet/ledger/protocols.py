"""Protocols and their steps: what they have besides a run and a step, and what forges say about commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Conflict, NotFound, ProjectId, RunId, RunStatus, StepId, StepStatus
from ratchet.ledger.runs import create_steps
from ratchet.ledger.tables import ci_checks, protocol_steps, protocols, runs, steps, webhook_deliveries
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


# Of two words of the same second, the one that says more; and rather no than yes.
_RANKS = {"pending": 0, "neutral": 1, "passed": 2, "failed": 3}


@dataclass(frozen=True, slots=True)
class CiCheck:
    """The newest word of one check about one commit; `detail` says where it failed."""

    project_id: int
    commit: str
    name: str
    provider: str
    state: str
    url: str | None
    detail: Any
    at: int
    updated_at: int


def add_delivery(
    tx: Transaction, project_id: int, provider: str, delivery: str, *, event: str, outcome: str
) -> int | None:
    """Remember a delivery; its number, or nothing if it was taken before.

    A second one that comes at the same time waits until the first is taken or given up.
    """
    row = {
        "project_id": project_id,
        "provider": provider,
        "delivery": delivery,
        "event": event,
        "outcome": outcome,
        "at": tx.now,
    }
    insert = tx.insert(webhook_deliveries).values(row)
    unless_there = insert.on_conflict_do_nothing(index_elements=["project_id", "provider", "delivery"])
    number: int | None = tx.connection.execute(unless_there.returning(webhook_deliveries.c.id)).scalar()
    return number


def close_delivery(tx: Transaction, number: int, *, run_id: int | None, outcome: str) -> None:
    """Say what became of a delivery."""
    tx.connection.execute(
        sa.update(webhook_deliveries)
        .where(webhook_deliveries.c.id == number)
        .values(run_id=run_id, outcome=outcome)
    )


def forget_deliveries(tx: Transaction, *, before: int, most: int) -> int:
    """Forget up to `most` deliveries older than `before`; how many. Never waits for others who do the same."""
    old = (
        sa.select(webhook_deliveries.c.id)
        .where(webhook_deliveries.c.at < before)
        .order_by(webhook_deliveries.c.at)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    numbers = list(tx.connection.execute(old).scalars())
    if numbers:
        tx.connection.execute(sa.delete(webhook_deliveries).where(webhook_deliveries.c.id.in_(numbers)))
    return len(numbers)


def put_check(
    tx: Transaction,
    project_id: int,
    commit: str,
    name: str,
    *,
    provider: str,
    state: str,
    at: int,
    url: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> bool:
    """Take the word of a check, unless a newer one is there; whether it was taken."""
    said = {
        "provider": provider,
        "state": state,
        "url": url,
        "detail": detail,
        "at": at,
        "updated_at": tx.now,
    }
    insert = tx.insert(ci_checks).values(project_id=project_id, commit=commit, name=name, **said)
    newer = sa.or_(
        insert.excluded.at > ci_checks.c.at,
        sa.and_(
            insert.excluded.at == ci_checks.c.at, _rank(insert.excluded.state) >= _rank(ci_checks.c.state)
        ),
    )
    upsert = insert.on_conflict_do_update(
        index_elements=["project_id", "commit", "name"],
        set_={column: insert.excluded[column] for column in said},
        where=newer,
    )
    return tx.connection.execute(upsert.returning(ci_checks.c.name)).first() is not None


def checks_of(tx: Transaction, project_id: int, commits: Iterable[str]) -> list[CiCheck]:
    """What is known about some commits, by commit and name."""
    wanted = (
        sa.select(ci_checks)
        .where(ci_checks.c.project_id == project_id, ci_checks.c.commit.in_(list(commits)))
        .order_by(ci_checks.c.commit, ci_checks.c.name)
    )
    return [CiCheck(**row) for row in tx.connection.execute(wanted).mappings()]


def runs_of_commit(tx: Transaction, project_id: int, commit: str) -> list[RunId]:
    """The protocols of a project whose branch was last pushed with this commit, or one of whose steps it is."""
    of_steps = sa.select(protocol_steps.c.run_id).where(protocol_steps.c.commit == commit)
    wanted = (
        sa.select(protocols.c.run_id)
        .where(protocols.c.project_id == project_id)
        .where(sa.or_(protocols.c.pushed == commit, protocols.c.run_id.in_(of_steps)))
        .order_by(protocols.c.run_id)
    )
    return [RunId(number) for number in tx.connection.execute(wanted).scalars()]


def _rank(state: sa.ColumnElement[str]) -> sa.ColumnElement[int]:
    return sa.case(_RANKS, value=state, else_=0)


_OF_STEP = ("name", "status", "reason", "spec", "result", "created_at", "updated_at", "ended_at")
_STEP_ROW = sa.select(protocol_steps, *(steps.c[name] for name in _OF_STEP)).join(
    steps, steps.c.id == protocol_steps.c.step_id
)


@dataclass(frozen=True, slots=True)
class ProtocolStep:
    """A step, with its place, who does it, and what policies did to it.

    `name` is like `01-build`, `spec` is its StepSpec; `depends_on` are names of steps; nothing means the one before.
    """

    step_id: StepId
    run_id: RunId
    step_index: int
    step_type: str
    engine_id: str | None
    model: str | None
    policy: Any
    runtime_state: Any
    summary: str | None
    retries: int
    depends_on: Any
    commit: str | None
    awaits_ci: bool
    name: str
    status: StepStatus
    reason: str | None
    spec: Any
    result: Any
    created_at: int
    updated_at: int
    ended_at: int | None

    @property
    def agent(self) -> str:
        """Its name without the number in front and an ending: what triggers call it."""
        plain = self.name.removesuffix(".md")
        number, dash, rest = plain.partition("-")
        return rest if dash and number.isdecimal() else plain


def add_protocol_steps(tx: Transaction, run_id: int, added: Sequence[Mapping[str, Any]]) -> list[StepId]:
    """Add pending steps. Each has `name`, `step_index`, `step_type`, `spec` and whatever other columns it needs.

    Raises `Conflict` when a name or a place is taken.
    """
    numbers = create_steps(tx, run_id, [(each["name"], each.get("spec") or {}) for each in added])
    rows = [
        {
            "step_id": number,
            "run_id": run_id,
            **{
                column.name: each.get(column.name)
                for column in protocol_steps.c
                if column.name not in ("step_id", "run_id")
            },
            "retries": 0,
            "awaits_ci": False,
        }
        for number, each in zip(numbers, added, strict=True)
    ]
    try:
        with tx.connection.begin_nested():
            tx.connection.execute(sa.insert(protocol_steps), rows)
    except exc.IntegrityError as error:
        raise Conflict(
            f"protocol {run_id} has a step at that index already",
            hint="leave the index out: the step is put behind the others",
        ) from error
    return numbers


def change_protocol_step(tx: Transaction, step_id: int, **values: Any) -> None:
    """Set columns of a step that are no status."""
    changed = tx.connection.execute(
        sa.update(protocol_steps).where(protocol_steps.c.step_id == step_id).values(**values)
    )
    if not changed.rowcount:
        raise NotFound("step", step_id)


def get_protocol_step(tx: Transaction, step_id: int) -> ProtocolStep:
    """Raises `NotFound`, also for a step of another kind of run."""
    row = tx.connection.execute(_STEP_ROW.where(protocol_steps.c.step_id == step_id)).mappings().first()
    if row is None:
        raise NotFound("step", step_id)
    return _step(row)


def list_protocol_steps(tx: Transaction, run_id: int) -> list[ProtocolStep]:
    """All steps of a protocol, in their order."""
    wanted = _STEP_ROW.where(protocol_steps.c.run_id == run_id).order_by(protocol_steps.c.step_index)
    return [_step(row) for row in tx.connection.execute(wanted).mappings()]


def count_protocol_steps(tx: Transaction, run_ids: Sequence[int]) -> dict[int, Counter[StepStatus]]:
    """How many steps of each status some protocols have."""
    counted = (
        sa.select(protocol_steps.c.run_id, steps.c.status, sa.func.count())
        .join(steps, steps.c.id == protocol_steps.c.step_id)
        .where(protocol_steps.c.run_id.in_(run_ids))
        .group_by(protocol_steps.c.run_id, steps.c.status)
    )
    found: dict[int, Counter[StepStatus]] = {run_id: Counter() for run_id in run_ids}
    for run_id, status, number in tx.connection.execute(counted):
        found[run_id][StepStatus(status)] = number
    return found


def _step(row: sa.RowMapping) -> ProtocolStep:
    return ProtocolStep(**{**row, "status": StepStatus(row["status"])})
