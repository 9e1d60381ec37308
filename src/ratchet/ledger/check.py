"""Checks of the whole ledger, its size and counters, and giving back space that is no longer used.

A check reads everything, so it takes as long as the ledger is large. It changes nothing.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from ratchet.kernel import LedgerCorrupt, LedgerUnavailable, NotFound, RunStatus, StepStatus, Usage
from ratchet.ledger.database import current_revision, translated
from ratchet.ledger.home import missing_from_home
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.tables import (
    agent_versions,
    agents,
    artifact_contents,
    artifacts,
    attempts,
    events,
    jobs,
    metadata,
    processes,
    protocols,
    research,
    runs,
    steps,
    tool_versions,
    tools,
    trials,
    usage,
    usage_days,
    usage_totals,
)
from ratchet.ledger.usage import DAY_MS, SCOPES

NUMBERED = tuple(table for table in metadata.sorted_tables if table.autoincrement_column is not None)


def counters(connection: sa.Connection, names: Sequence[str] | None = None) -> dict[str, int]:
    """The last number given in each numbered table, or in those of some names; 0 where none was."""
    names = [table.name for table in NUMBERED] if names is None else names
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence").all()
        given: dict[str, int] = {row.name: row.seq for row in rows}
        return {name: given.get(name, 0) for name in names}
    last = sa.text("SELECT pg_sequence_last_value(pg_get_serial_sequence(:table, 'id')::regclass)")
    return {name: connection.execute(last, {"table": name}).scalar() or 0 for name in names}


def raise_counter(connection: sa.Connection, table: str, number: int) -> None:
    """Let the next row of `table` have a number above `number`."""
    if number <= counters(connection)[table]:
        return
    values = {"table": table, "number": number}
    if connection.dialect.name == "sqlite":
        # The table has no key to conflict on.
        connection.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :table"), values)
        connection.execute(
            sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :number)"), values
        )
    else:
        connection.execute(sa.text("SELECT setval(pg_get_serial_sequence(:table, 'id'), :number)"), values)


Severity = Literal["error", "warning", "info"]
# Enough to see what is wrong; a ledger that is wrong everywhere is not listed row by row.
_EXAMPLES = 20
_RESTORE = "restore a backup: `ratchet ledger restore FILE`"


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    """One thing that is not as it should be, and what to do about it."""

    severity: Severity
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    findings: tuple[LedgerFinding, ...]

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)


def check(
    ledger: Ledger, *, home: bool = False, secret_key: Callable[[], str | None] = lambda: None
) -> CheckReport:
    """Check the database, the schema, the rows and the artifact files. Others may continue working meanwhile.

    With `home` also the repositories, refs, versions of agents and keys that rows rely on; `secret_key` is the one that
    is configured, in the place of the one in a file.
    """
    findings: list[LedgerFinding] = []
    try:
        with ledger.read() as tx:
            findings += _database(tx.connection)
            findings += _schema(tx.connection)
            # Rows cannot be asked for where tables or columns may be missing.
            if not findings:
                findings += _statuses(tx.connection)
                findings += _open_attempts(tx.connection)
                findings += _abandoned_steps(tx.connection)
                findings += _abandoned_runs(tx.connection)
                findings += _rows_that_name_nothing(tx.connection)
                findings += _totals(tx.connection)
                findings += _days(tx.connection)
                findings += _numbers(tx.connection)
                findings += _files(ledger)
                if home:
                    place = ledger.artifacts.root.parent
                    lost = missing_from_home(tx.connection, place, secret_key=secret_key)
                    findings += [LedgerFinding("error", what, fix) for what, fix in lost]
    except LedgerCorrupt as error:
        findings.append(LedgerFinding("error", str(error), _RESTORE))
    return CheckReport(tuple(findings))


def _database(connection: sa.Connection) -> Iterator[LedgerFinding]:
    if connection.dialect.name == "sqlite":
        for (line,) in connection.exec_driver_sql(f"PRAGMA integrity_check({_EXAMPLES})"):
            if line != "ok":
                yield LedgerFinding("error", f"the database file is damaged: {line}", _RESTORE)
        for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(
            _EXAMPLES
        ):
            yield LedgerFinding(
                "error", f"row {row} of {table} names a row of {parent} that is not there", _RESTORE
            )
        return
    invalid = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid OR NOT indisready"
    for name in connection.execute(sa.text(invalid)).scalars():
        yield LedgerFinding(
            "error", f"the index {name} is not valid", f"run `REINDEX INDEX {name}` in the database"
        )
    loose = "SELECT conname FROM pg_constraint WHERE NOT convalidated"
    for name in connection.execute(sa.text(loose)).scalars():
        yield LedgerFinding(
            "warning", f"the constraint {name} was never checked", "validate it in the database"
        )
    failures = "SELECT checksum_failures FROM pg_stat_database WHERE datname = current_database()"
    if connection.execute(sa.text(failures)).scalar():
        yield LedgerFinding("error", "PostgreSQL has met pages with a wrong checksum", _RESTORE)


def _schema(connection: sa.Connection) -> Iterator[LedgerFinding]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def ours(name: str | None, kind: str, _parents: Any) -> bool:
        # A database may hold other tables beside ours: those of an earlier queue, for one.
        return kind != "table" or name in metadata.tables

    context = MigrationContext.configure(connection, opts={"include_name": ours})
    for difference in compare_metadata(context, metadata):
        yield LedgerFinding("error", f"the schema is not this version's: {_described(difference)}", _RESTORE)


def _described(difference: Any) -> str:
    """Alembic's word for a difference, such as `add_index ix_events_type`: what would have to be done."""
    if isinstance(difference, list):
        return "; ".join(map(_described, difference))
    named = [each if isinstance(each, str) else getattr(each, "name", None) for each in difference[1:]]
    return " ".join([difference[0], *(str(name) for name in named if name)])


def _statuses(connection: sa.Connection) -> Iterator[LedgerFinding]:
    for table, known in ((runs, RunStatus), (steps, StepStatus)):
        query = sa.select(table.c.id, table.c.status).where(
            table.c.status.not_in([str(each) for each in known])
        )
        for number, status in connection.execute(query.limit(_EXAMPLES)):
            yield LedgerFinding(
                "error", f"row {number} of {table.name} has the unknown status {status!r}", _RESTORE
            )


def _open_attempts(connection: sa.Connection) -> Iterator[LedgerFinding]:
    final = [str(each) for each in StepStatus if each.final]
    query = (
        sa.select(attempts.c.id, steps.c.id, steps.c.status)
        .join(steps, steps.c.id == attempts.c.step_id)
        .where(attempts.c.ended_at.is_(None), steps.c.status.in_(final))
    )
    for attempt, step, status in connection.execute(query.limit(_EXAMPLES)):
        yield LedgerFinding(
            "warning", f"attempt {attempt} is open, but its step {step} is {status}", "nothing to do"
        )


def _abandoned_steps(connection: sa.Connection) -> Iterator[LedgerFinding]:
    """Steps that run in no process: every job of their run has ended. A paused or blocked run is resumed with them."""
    of_run = sa.exists().where(jobs.c.run_id == runs.c.id)
    query = (
        sa.select(runs.c.id, runs.c.status, sa.func.count())
        .join(steps, steps.c.run_id == runs.c.id)
        .where(
            steps.c.status == str(StepStatus.RUNNING),
            runs.c.status.not_in([str(RunStatus.PAUSED), str(RunStatus.BLOCKED)]),
            of_run,
            ~of_run.where(jobs.c.ended_at.is_(None)),
        )
        .group_by(runs.c.id, runs.c.status)
        .order_by(runs.c.id)
    )
    for run, status, count in connection.execute(query.limit(_EXAMPLES)):
        what = f"run {run} is {status}, and {count} of its steps are running with no job for them"
        if RunStatus(status).final:
            yield LedgerFinding("warning", what, "nothing to do: the run has ended")
        else:
            again = f"queue it again: `ratchet runs pause {run}`, then `ratchet runs resume {run}`"
            yield LedgerFinding("error", what, again)


def _abandoned_runs(connection: sa.Connection) -> Iterator[LedgerFinding]:
    """Runs that are under way in no process and wait in no queue. A protocol may wait for a person so."""
    query = (
        sa.select(runs.c.id, runs.c.status)
        .where(
            runs.c.status.in_([str(RunStatus.RUNNING), str(RunStatus.PLANNING)]),
            ~sa.exists().where(jobs.c.run_id == runs.c.id, jobs.c.ended_at.is_(None)),
            ~sa.exists().where(steps.c.run_id == runs.c.id, steps.c.status == str(StepStatus.RUNNING)),
            ~sa.exists().where(protocols.c.run_id == runs.c.id),
        )
        .order_by(runs.c.id)
    )
    for run, status in connection.execute(query.limit(_EXAMPLES)):
        again = f"queue it again: `ratchet runs pause {run}`, then `ratchet runs resume {run}`"
        yield LedgerFinding("error", f"run {run} is {status}, with no job for it", again)


def _rows_that_name_nothing(connection: sa.Connection) -> Iterator[LedgerFinding]:
    """Rows that name others without the database seeing to it: two tables name each other there."""
    known = sa.exists().where(
        agent_versions.c.agent_id == agents.c.id, agent_versions.c.commit == agents.c.current
    )
    tried = sa.exists().where(trials.c.run_id == research.c.run_id, trials.c.number == research.c.best)
    version = sa.exists().where(tool_versions.c.id == tools.c.current_id)
    for table, column, what, there in (
        (agents, agents.c.current, "a version", known),
        (research, research.c.best, "a trial", tried),
        (tools, tools.c.current_id, "a version", version),
    ):
        key = next(iter(table.primary_key.columns))
        query = sa.select(key, column).where(column.is_not(None), ~there).order_by(key)
        for number, named in connection.execute(query.limit(_EXAMPLES)):
            yield LedgerFinding(
                "error", f"row {number} of {table.name} names {what} that is not there: {named}", _RESTORE
            )


def _totals(connection: sa.Connection) -> Iterator[LedgerFinding]:
    names = [field.name for field in fields(Usage)]
    for scope in SCOPES:
        scope_id = usage.c[f"{scope}_id"]
        sums = (
            sa.select(scope_id.label("scope_id"), *(sa.func.sum(usage.c[name]).label(name) for name in names))
            .where(scope_id.is_not(None))
            .group_by(scope_id)
            .subquery()
        )
        kept = sa.select(usage_totals).where(usage_totals.c.scope == scope).subquery()
        differs = sa.or_(
            *(sa.func.coalesce(sums.c[name], 0) != sa.func.coalesce(kept.c[name], 0) for name in names)
        )
        both = sums.join(kept, kept.c.scope_id == sums.c.scope_id, full=True)
        query = sa.select(sa.func.coalesce(sums.c.scope_id, kept.c.scope_id)).select_from(both).where(differs)
        for number in connection.execute(query.limit(_EXAMPLES)).scalars():
            yield LedgerFinding(
                "error", f"the usage total of {scope} {number} is not the sum of its usage", _RESTORE
            )


def _days(connection: sa.Connection) -> Iterator[LedgerFinding]:
    names = [field.name for field in fields(Usage)]
    # Whole days: the division that SQLAlchemy writes itself keeps the rest.
    day = usage.c.at.op("/")(DAY_MS).label("day")
    sums = (
        sa.select(day, *(sa.func.sum(usage.c[name]).label(name) for name in names)).group_by(day).subquery()
    )
    kept = (
        sa.select(usage_days.c.day, *(sa.func.sum(usage_days.c[name]).label(name) for name in names))
        .group_by(usage_days.c.day)
        .subquery()
    )
    differs = sa.or_(
        *(sa.func.coalesce(sums.c[name], 0) != sa.func.coalesce(kept.c[name], 0) for name in names)
    )
    both = sums.join(kept, kept.c.day == sums.c.day, full=True)
    query = sa.select(sa.func.coalesce(sums.c.day, kept.c.day)).select_from(both).where(differs)
    for found in connection.execute(query.limit(_EXAMPLES)).scalars():
        told = datetime.fromtimestamp(found * DAY_MS / 1000, UTC).date().isoformat()
        yield LedgerFinding(
            "error", f"the usage of {told} is not the sum of what was used that day", _RESTORE
        )


def _numbers(connection: sa.Connection) -> Iterator[LedgerFinding]:
    # Read row by row in their order, not by the index that promises it.
    twice = sa.select(events.c.id).group_by(events.c.id).having(sa.func.count() > 1)
    for number in connection.execute(twice.limit(_EXAMPLES)).scalars():
        yield LedgerFinding("error", f"event {number} is there more than once", _RESTORE)
    given = counters(connection)
    for table in NUMBERED:
        highest = connection.execute(sa.select(sa.func.max(table.c.id))).scalar() or 0
        if highest > given[table.name]:
            what = f"{table.name} has row {highest}, but its counter is at {given[table.name]}"
            yield LedgerFinding(
                "error", what, f"set the counter of {table.name} to {highest} in the database"
            )


def _files(ledger: Ledger) -> Iterator[LedgerFinding]:
    # The collector is kept out: a file it takes would look lost.
    with ledger.artifacts.held(), ledger.read() as tx:
        lost = 0
        for sha256, wrong in itertools.chain(_contents(tx.connection), _large(ledger, tx.connection)):
            lost += wrong is not None
            if wrong and lost <= _EXAMPLES:
                yield LedgerFinding("error", f"artifact {sha256} {wrong}", _RESTORE)
        if lost > _EXAMPLES:
            yield LedgerFinding("error", f"{lost - _EXAMPLES} more artifacts are lost or damaged", _RESTORE)
        orphans = sum(
            tx.connection.execute(
                sa.select(artifacts.c.id).where(artifacts.c.sha256 == sha256).limit(1)
            ).first()
            is None
            for sha256 in ledger.artifacts.hashes()
        )
    if orphans:
        yield LedgerFinding(
            "info",
            f"{orphans} artifact files are not referenced",
            "`ratchet ledger vacuum` removes old ones",
        )


def _contents(connection: sa.Connection) -> Iterator[tuple[str, str | None]]:
    """What is wrong with the content of each artifact that is in the database."""
    query = (
        sa.select(artifacts.c.sha256, artifacts.c.size, artifact_contents.c.content)
        .join(artifact_contents, artifact_contents.c.artifact_id == artifacts.c.id)
        .order_by(artifacts.c.id)
    )
    for sha256, size, content in connection.execute(query, execution_options={"yield_per": 100}):
        yield sha256, _unlike(sha256, size, hashlib.sha256(content).hexdigest(), len(content))


def _large(ledger: Ledger, connection: sa.Connection) -> Iterator[tuple[str, str | None]]:
    """What is wrong with the file of each artifact whose content is not in the database."""
    query = (
        sa.select(artifacts.c.sha256, artifacts.c.size)
        .outerjoin(artifact_contents, artifact_contents.c.artifact_id == artifacts.c.id)
        .where(artifact_contents.c.artifact_id.is_(None))
        .distinct()
        .order_by(artifacts.c.sha256)
    )
    for sha256, size in connection.execute(query, execution_options={"yield_per": 1000}):
        yield sha256, _wrong(ledger, sha256, size)


def _wrong(ledger: Ledger, sha256: str, size: int) -> str | None:
    try:
        digest, length = ledger.artifacts.digest(sha256)
    except (OSError, NotFound) as error:
        return "is missing" if isinstance(error, NotFound) else f"cannot be read: {error}"
    return _unlike(sha256, size, digest, length)


def _unlike(sha256: str, size: int, digest: str, length: int) -> str | None:
    if digest != sha256:
        return "does not match its hash"
    return None if length == size else f"has {length} bytes, not {size} as its row says"


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """`given` is the last number given in each numbered table: how many rows there ever were."""

    database: str
    bytes: int
    schema: str | None
    given: dict[str, int]


def ledger_size(ledger: Ledger) -> LedgerSize:
    with ledger.read() as tx:
        connection = tx.connection
        given = counters(connection)
        schema = current_revision(connection)
        if connection.dialect.name == "postgresql":
            version = connection.exec_driver_sql("SHOW server_version").scalar_one()
            size = connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one()
            return LedgerSize(f"PostgreSQL {version}", int(size), schema, given)
        version = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
    files = [ledger.path, ledger.path.with_name(f"{ledger.path.name}-wal")] if ledger.path else []
    size = sum(each.stat().st_size for each in files if each.exists())
    return LedgerSize(f"SQLite {version}", size, schema, given)


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed."""

    rows: int
    files: int
    bytes: int


def collect_artifacts(ledger: Ledger, *, grace_seconds: float, expire_before: int | None = None) -> Collected:
    """Forget artifacts created before `expire_before` (never pinned ones), then delete files that nobody names.

    Rows go first and are committed: a crash in between leaves files without rows, which the next collection takes,
    never rows without files. A file younger than the grace period stays, since its row may be on its way.
    """
    rows = 0
    if expire_before is not None:
        with ledger.write(actor="collector") as tx:
            expired = sa.delete(artifacts).where(
                artifacts.c.created_at < expire_before, artifacts.c.pinned.is_(sa.false())
            )
            rows = tx.connection.execute(expired).rowcount
            if rows:
                tx.event("artifacts.expired", data={"count": rows, "created_before": expire_before})
    files, size = ledger.artifacts.remove_unnamed(
        lambda sha256: _named(ledger, sha256), grace_seconds=grace_seconds
    )
    return Collected(rows=rows, files=files, bytes=size)


def _named(ledger: Ledger, sha256: str) -> bool:
    with ledger.read() as tx:
        query = sa.select(sa.literal(1)).where(artifacts.c.sha256 == sha256).limit(1)
        return tx.connection.execute(query).first() is not None


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What was given back. `in_the_way` names the processes for whose sake the database file could not shrink."""

    artifacts: Collected
    database_bytes: int
    in_the_way: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return self.artifacts.bytes + self.database_bytes


def vacuum(
    ledger: Ledger,
    *,
    grace_seconds: float,
    expire_before: int | None = None,
    patience_seconds: float = 10.0,
) -> VacuumReport:
    """Collect artifacts by the rule of `collect_artifacts`, then compact the database. Others may continue working.

    Raises `LedgerUnavailable`, naming who works on the ledger, when a writer does not let go of a SQLite file within
    `patience_seconds`; the artifacts are collected by then.
    """
    collected = collect_artifacts(ledger, grace_seconds=grace_seconds, expire_before=expire_before)
    before = _size(ledger)
    whole = _compact_postgresql(ledger) if ledger.path is None else _compact_sqlite(ledger, patience_seconds)
    return VacuumReport(
        artifacts=collected,
        database_bytes=max(0, before - _size(ledger)),
        in_the_way=() if whole else _at_work(ledger),
    )


def _compact_sqlite(ledger: Ledger, patience_seconds: float) -> bool:
    """Whether the log could be emptied, too: not while somebody reads an older state."""
    with translated(ledger.url), ledger.engine.connect() as connection:
        own = connection.execution_options(isolation_level="AUTOCOMMIT")
        own.detach()  # its settings are not for the pool
        own.exec_driver_sql(f"PRAGMA busy_timeout={int(patience_seconds * 1000)}")
        try:
            own.exec_driver_sql("VACUUM")
        except sa.exc.OperationalError as error:
            if "locked" not in str(error.orig):
                raise
            who = ", ".join(_at_work(ledger)) or "no process that says so"
            raise LedgerUnavailable(
                f"the ledger is being written and cannot be compacted; at work: {who}",
                hint="try again when they are idle; nothing was lost",
            ) from error
        busy, _, _ = own.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
    return not busy


def _compact_postgresql(ledger: Ledger) -> bool:
    with translated(ledger.url), ledger.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM (ANALYZE)")
    return True


def _size(ledger: Ledger) -> int:
    """The bytes of the database with its log."""
    if ledger.path is not None:
        files = (ledger.path, ledger.path.with_name(ledger.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())
    with ledger.read() as tx:
        return int(tx.connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())


def _at_work(ledger: Ledger) -> tuple[str, ...]:
    with ledger.read() as tx:
        alive = sa.select(processes.c.id).where(processes.c.state.in_(["alive", "draining"]))
        return tuple(tx.connection.execute(alive.order_by(processes.c.id)).scalars())
