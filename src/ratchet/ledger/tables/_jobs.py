"""What the runtime keeps: jobs, their queues and schedules, and the processes that carry them out."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, numbered, partial, to
from ratchet.ledger.tables._runs import metadata

jobs = sa.Table(
    "jobs",
    metadata,
    numbered(),
    sa.Column("kind", Words, nullable=False),
    sa.Column("queue", Words, nullable=False),
    sa.Column("key", Words),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("payload", Json, nullable=False),
    to("runs"),
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
    partial("ix_jobs_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("ix_jobs_process", "process_id", where="status = 'started'"),
    partial(
        "ix_jobs_in_line",
        "key",
        "priority",
        "id",
        where="status IN ('queued', 'waiting') AND key IS NOT NULL",
    ),
    partial("ix_jobs_ready", "queue", "priority", "id", where="status = 'queued'"),
    # By status too, though it holds one only: else SQLite prefers `ix_jobs_status` and sorts.
    partial("ix_jobs_due", "status", "due_at", where="status = 'scheduled'"),
    # Two jobs with one key never overlap: the database itself refuses the second.
    partial("uq_jobs_running_key", "key", where="status = 'started' AND key IS NOT NULL", unique=True),
    partial("uq_jobs_once", "once", where="once IS NOT NULL", unique=True),
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

queues = sa.Table(
    "job_queues",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("paused", sa.Boolean, nullable=False),
)

# When jobs of queues with a rate limit were started, for as long as the limit looks back.
job_starts = sa.Table(
    "job_starts",
    metadata,
    sa.Column("job_id", Number, primary_key=True, autoincrement=False),
    sa.Column("delivery", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("queue", Words, nullable=False),
    sa.Column("at", Number, nullable=False),
    sa.Index("ix_job_starts_queue", "queue", "at"),
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
    # Times up to this one are dealt with.
    sa.Column("seen_at", Number),
    # What happens to times that passed while nobody was there; NULL fires once for all of them.
    sa.Column("missed", sa.String(16)),
    sa.Column("priority", sa.Integer),
    # The schedule as a person said it.
    sa.Column("words", Words),
)

triggers = sa.Table(
    "triggers",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("workflow", Words, nullable=False),
    # Where messages come from, without a secret: those are named and looked up where they are used.
    sa.Column("source", Json, nullable=False),
    # What every run is given, and the input that takes the message as a whole, if one does.
    sa.Column("inputs", Json, nullable=False),
    sa.Column("takes", Words),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("started", Number, nullable=False),
    sa.Column("refused", Number, nullable=False),
    sa.Column("last_at", Number),
    # Why no message can be had now, if that is so.
    sa.Column("reason", Words),
    sa.Column("reason_at", Number),
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
    # How often it was asked how it is, and what it said last: see `ProcessFacts`.
    sa.Column("asked", sa.Integer, nullable=False, server_default="0"),
    sa.Column("facts", Json),
    sa.Index("ix_processes_state", "state"),
)
