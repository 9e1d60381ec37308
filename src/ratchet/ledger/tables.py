"""The ledger's tables.

Times are whole milliseconds since 1970 (UTC), numbered rows never reuse a number, and JSON is text. The indexes serve
the lists and views: each reads a page from the end of one index, however long the history is. Those that matter only
for unfinished work are partial, so that finished work costs nothing.
"""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Words

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Compared by code points on both databases, so that "every type that starts with run." is a range of the index.
Type = Words().with_variant(Words(collation="C"), "postgresql")


def _numbered() -> sa.Column[int]:
    return sa.Column("id", Number, primary_key=True, autoincrement=True)


def _to(table: str, *, required: bool = False) -> sa.Column[int]:
    column = {"projects": "project_id", "runs": "run_id", "steps": "step_id", "attempts": "attempt_id"}[table]
    return sa.Column(column, Number, sa.ForeignKey(f"{table}.id"), nullable=not required)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


projects = sa.Table(
    "projects",
    metadata,
    _numbered(),
    sa.Column("name", Words, nullable=False, unique=True),
    sa.Column("created_at", Number, nullable=False),
    sqlite_autoincrement=True,
)

runs = sa.Table(
    "runs",
    metadata,
    _numbered(),
    sa.Column("kind", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    _to("projects"),
    sa.Column("status", Words, nullable=False),
    sa.Column("reason", Words),
    sa.Column("spec", Json, nullable=False),
    sa.Column("result", Json),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("used_recording", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.Index("ix_runs_status", "status", "id"),
    sa.Index("ix_runs_kind", "kind", "id"),
    sa.Index("ix_runs_name", "name", "id"),
    _partial("ix_runs_project", "project_id", "id", where="project_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

steps = sa.Table(
    "steps",
    metadata,
    _numbered(),
    _to("runs", required=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("status", Words, nullable=False),
    sa.Column("reason", Words),
    sa.Column("spec", Json, nullable=False),
    sa.Column("result", Json),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.UniqueConstraint("run_id", "name"),
    sa.Index("ix_steps_run", "run_id", "position", "id"),
    sqlite_autoincrement=True,
)

attempts = sa.Table(
    "attempts",
    metadata,
    _numbered(),
    _to("runs", required=True),
    _to("steps", required=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("process_id", Words),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("outcome", Words),
    sa.Column("reason", Words),
    sa.Column("verdict", Json),
    sa.Column("started_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.UniqueConstraint("step_id", "number"),
    sa.Index("ix_attempts_run", "run_id", "id"),
    sqlite_autoincrement=True,
)

# No foreign keys: an event is history and outlives what it speaks of.
events = sa.Table(
    "events",
    metadata,
    _numbered(),
    sa.Column("at", Number, nullable=False),
    sa.Column("type", Type, nullable=False),
    sa.Column("actor", Words, nullable=False),
    sa.Column("request_id", Words),
    sa.Column("project_id", Number),
    sa.Column("run_id", Number),
    sa.Column("step_id", Number),
    sa.Column("attempt_id", Number),
    sa.Column("job_id", Number),
    sa.Column("message", Words),
    sa.Column("data", Json),
    sa.Index("ix_events_type", "type", "id"),
    _partial("ix_events_project", "project_id", "id", where="project_id IS NOT NULL"),
    _partial("ix_events_run", "run_id", "id", where="run_id IS NOT NULL"),
    _partial("ix_events_step", "step_id", "id", where="step_id IS NOT NULL"),
    _partial("ix_events_job", "job_id", "id", where="job_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    _numbered(),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("size", Number, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("media_type", Words, nullable=False),
    _to("runs"),
    _to("attempts"),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_artifacts_sha256", "sha256", "id"),
    sa.Index("ix_artifacts_created", "created_at"),
    _partial("ix_artifacts_run", "run_id", "id", where="run_id IS NOT NULL"),
    _partial("ix_artifacts_attempt", "attempt_id", "id", where="attempt_id IS NOT NULL"),
    sqlite_autoincrement=True,
)


def _usage_columns() -> list[sa.Column[int]]:
    names = ("input_tokens", "cached_tokens", "output_tokens", "cost_microusd", "wall_ms", "trials")
    return [sa.Column(name, Number, nullable=False) for name in names]


usage = sa.Table(
    "usage",
    metadata,
    _numbered(),
    sa.Column("at", Number, nullable=False),
    _to("projects"),
    _to("runs"),
    _to("attempts"),
    sa.Column("engine", Words, nullable=False),
    sa.Column("model", Words),
    *_usage_columns(),
    _partial("ix_usage_run", "run_id", "id", where="run_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# The sums of `usage`, kept in the same transaction, so that a budget check never adds up history.
usage_totals = sa.Table(
    "usage_totals",
    metadata,
    sa.Column("scope", sa.String(16), primary_key=True),
    sa.Column("scope_id", Number, primary_key=True, autoincrement=False),
    *_usage_columns(),
)

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("scope", sa.String(16), primary_key=True),
    sa.Column("scope_id", Number, primary_key=True, autoincrement=False),
    sa.Column("policy", sa.String(16)),
    sa.Column("tokens", Number),
    sa.Column("cost_usd", sa.Float),
    sa.Column("wall_seconds", sa.Float),
    sa.Column("trials", Number),
)

jobs = sa.Table(
    "jobs",
    metadata,
    _numbered(),
    sa.Column("kind", Words, nullable=False),
    sa.Column("queue", Words, nullable=False),
    sa.Column("key", Words),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("payload", Json, nullable=False),
    _to("runs"),
    sa.Column("request_id", Words),
    sa.Column("once", Words),
    sa.Column("status", Words, nullable=False),
    sa.Column("stop", Words),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("timeout_ms", Number),
    # The fence: it rises with every hand-over, and only the holder of the newest number may write.
    sa.Column("delivery", sa.Integer, nullable=False),
    sa.Column("recoveries", sa.Integer, nullable=False),
    sa.Column("process_id", Words),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("due_at", Number, nullable=False),
    sa.Column("started_at", Number),
    sa.Column("ended_at", Number),
    sa.Column("result", Json),
    sa.Column("error", Words),
    sa.Index("ix_jobs_status", "status", "id"),
    sa.Index("ix_jobs_queue", "queue", "id"),
    sa.Index("ix_jobs_queue_status", "queue", "status", "id"),
    _partial("ix_jobs_run", "run_id", "id", where="run_id IS NOT NULL"),
    _partial("ix_jobs_process", "process_id", where="status = 'started'"),
    _partial(
        "ix_jobs_in_line",
        "key",
        "priority",
        "id",
        where="status IN ('queued', 'waiting') AND key IS NOT NULL",
    ),
    _partial("ix_jobs_ready", "queue", "priority", "id", where="status = 'queued'"),
    # Two jobs with one key never overlap: the database itself refuses the second.
    _partial("uq_jobs_running_key", "key", where="status = 'started' AND key IS NOT NULL", unique=True),
    _partial("uq_jobs_once", "once", where="once IS NOT NULL", unique=True),
    sqlite_autoincrement=True,
)

# How many jobs ended how. One row per process that counted, so that workers do not wait for each other.
job_tallies = sa.Table(
    "job_tallies",
    metadata,
    sa.Column("queue", Words, primary_key=True),
    sa.Column("status", Words, primary_key=True),
    sa.Column("process_id", Words, primary_key=True),
    sa.Column("count", Number, nullable=False),
)

# What an attempt has finished so far: a restart goes on behind the last one.
stages = sa.Table(
    "stages",
    metadata,
    sa.Column("attempt_id", Number, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    sa.Column("name", Words, primary_key=True),
    sa.Column("at", Number, nullable=False),
    sa.Column("data", Json, nullable=False),
)

# One use of an engine: the author of an attempt, or its reviewer.
sessions = sa.Table(
    "sessions",
    metadata,
    _numbered(),
    _to("runs"),
    _to("attempts"),
    sa.Column("role", Words, nullable=False),
    sa.Column("engine", Words, nullable=False),
    sa.Column("model", Words),
    sa.Column("failure", Words),
    sa.Column("reason", Words),
    sa.Column("resume", Words),
    sa.Column("transcript", sa.String(64)),
    sa.Column("simulated", sa.Boolean, nullable=False),
    *_usage_columns(),
    sa.Column("at", Number, nullable=False),
    _partial("ix_sessions_run", "run_id", "id", where="run_id IS NOT NULL"),
    _partial("ix_sessions_attempt", "attempt_id", "id", where="attempt_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# What running attempts may still spend, so that attempts side by side cannot share out the same budget twice.
holds = sa.Table(
    "holds",
    metadata,
    sa.Column("attempt_id", Number, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    _to("runs"),
    _to("projects"),
    sa.Column("tokens", Number, nullable=False),
    sa.Column("cost_microusd", Number, nullable=False),
    _partial("ix_holds_run", "run_id", where="run_id IS NOT NULL"),
    _partial("ix_holds_project", "project_id", where="project_id IS NOT NULL"),
)

# Questions to a person, on which a verdict waits.
approvals = sa.Table(
    "approvals",
    metadata,
    _numbered(),
    _to("runs"),
    _to("attempts"),
    sa.Column("once", Words, nullable=False, unique=True),
    sa.Column("subject", Words, nullable=False),
    sa.Column("question", Words, nullable=False),
    sa.Column("data", Json, nullable=False),
    sa.Column("status", Words, nullable=False),
    sa.Column("comment", Words),
    sa.Column("decided_by", Words),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("decided_at", Number),
    sa.Index("ix_approvals_status", "status", "id"),
    _partial("ix_approvals_run", "run_id", "id", where="run_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# What else keeps tables in this database, and in which version they are complete.
components = sa.Table(
    "components",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("version", Words, nullable=False),
)

queues = sa.Table(
    "job_queues",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("paused", sa.Boolean, nullable=False),
)

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("cron", Words, nullable=False),
    sa.Column("timezone", Words, nullable=False),
    sa.Column("kind", Words, nullable=False),
    sa.Column("queue", Words, nullable=False),
    sa.Column("key", Words),
    sa.Column("payload", Json, nullable=False),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("last_fired_at", Number),
)

processes = sa.Table(
    "processes",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("role", Words, nullable=False),
    sa.Column("host", Words, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("identity", Words, nullable=False),
    sa.Column("version", Words, nullable=False),
    sa.Column("state", Words, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("busy", sa.Integer, nullable=False),
    sa.Column("beat", Number, nullable=False),
    sa.Column("started_at", Number, nullable=False),
    sa.Column("beat_at", Number, nullable=False),
    sa.Column("metrics", Json),
    sa.Index("ix_processes_state", "state"),
)
