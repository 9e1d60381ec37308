"""Projects, runs and what they are made of, events and artifacts, questions to people, and usage."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Type, Words, measures, numbered, partial, to

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# No foreign keys: an event is history and outlives what it speaks of.
events = sa.Table(
    "events",
    metadata,
    numbered(),
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
    partial("ix_events_project", "project_id", "id", where="project_id IS NOT NULL"),
    partial("ix_events_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("ix_events_step", "step_id", "id", where="step_id IS NOT NULL"),
    partial("ix_events_attempt", "attempt_id", "id", where="attempt_id IS NOT NULL"),
    partial("ix_events_job", "job_id", "id", where="job_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    numbered(),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("size", Number, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("media_type", Words, nullable=False),
    to("runs"),
    to("attempts"),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_artifacts_sha256", "sha256", "id"),
    sa.Index("ix_artifacts_created", "created_at"),
    partial("ix_artifacts_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("ix_artifacts_attempt", "attempt_id", "id", where="attempt_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# The content of a small artifact. That of a large one is a file.
artifact_contents = sa.Table(
    "artifact_contents",
    metadata,
    sa.Column(
        "artifact_id",
        Number,
        sa.ForeignKey("artifacts.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("content", sa.LargeBinary, nullable=False),
)


runs = sa.Table(
    "runs",
    metadata,
    numbered(),
    sa.Column("kind", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    to("projects"),
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
    partial("ix_runs_project", "project_id", "id", where="project_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

steps = sa.Table(
    "steps",
    metadata,
    numbered(),
    to("runs", required=True),
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
    numbered(),
    to("runs", required=True),
    to("steps", required=True),
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

# What an attempt has finished so far: a restart continues behind the last one.
stages = sa.Table(
    "stages",
    metadata,
    sa.Column("attempt_id", Number, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    sa.Column("name", Words, primary_key=True),
    sa.Column("at", Number, nullable=False),
    sa.Column("data", Json, nullable=False),
)

# What running attempts may still spend, so that attempts side by side cannot share out the same budget twice.
holds = sa.Table(
    "holds",
    metadata,
    sa.Column("attempt_id", Number, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    to("runs"),
    to("projects"),
    sa.Column("tokens", Number, nullable=False),
    sa.Column("cost_microusd", Number, nullable=False),
    partial("ix_holds_run", "run_id", where="run_id IS NOT NULL"),
    partial("ix_holds_project", "project_id", where="project_id IS NOT NULL"),
)


# Questions to a person, on which a verdict waits.
approvals = sa.Table(
    "approvals",
    metadata,
    numbered(),
    to("runs"),
    to("attempts"),
    sa.Column("once", Words, nullable=False, unique=True),
    sa.Column("subject", Words, nullable=False),
    sa.Column("question", Words, nullable=False),
    sa.Column("data", Json, nullable=False),
    sa.Column("status", Words, nullable=False),
    sa.Column("comment", Words),
    sa.Column("decided_by", Words),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("decided_at", Number),
    # Where more is asked for than yes or no.
    sa.Column("answer", Json),
    sa.Index("ix_approvals_status", "status", "id"),
    partial("ix_approvals_run", "run_id", "id", where="run_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# Questions that block what they apply to until somebody answers.
clarifications = sa.Table(
    "clarifications",
    metadata,
    numbered(),
    to("projects", required=True),
    to("runs"),
    to("steps"),
    sa.Column("key", Words, nullable=False),
    sa.Column("question", Words, nullable=False),
    sa.Column("options", Json),
    sa.Column("recommended", Json),
    sa.Column("applies_to", sa.String(16), nullable=False),
    sa.Column("blocking", sa.Boolean, nullable=False),
    sa.Column("answer", Json),
    sa.Column("answered_by", Words),
    sa.Column("answered_at", Number),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_clarifications_project", "project_id", "id"),
    partial("ix_clarifications_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("uq_clarifications_project_key", "project_id", "key", where="run_id IS NULL", unique=True),
    partial(
        "uq_clarifications_run_key",
        "run_id",
        "key",
        where="run_id IS NOT NULL AND step_id IS NULL",
        unique=True,
    ),
    partial("uq_clarifications_step_key", "step_id", "key", where="step_id IS NOT NULL", unique=True),
    sqlite_autoincrement=True,
)


# One use of an engine: the author of an attempt, or its reviewer.
sessions = sa.Table(
    "sessions",
    metadata,
    numbered(),
    to("runs"),
    to("attempts"),
    sa.Column("role", Words, nullable=False),
    sa.Column("engine", Words, nullable=False),
    sa.Column("model", Words),
    sa.Column("failure", Words),
    sa.Column("reason", Words),
    sa.Column("resume", Words),
    sa.Column("transcript", sa.String(64)),
    sa.Column("simulated", sa.Boolean, nullable=False),
    *measures(),
    sa.Column("at", Number, nullable=False),
    sa.Index("ix_sessions_engine", "engine", "id"),
    partial("ix_sessions_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("ix_sessions_attempt", "attempt_id", "id", where="attempt_id IS NOT NULL"),
    partial("ix_sessions_failed", "id", where="failure IS NOT NULL"),
    sqlite_autoincrement=True,
)

usage = sa.Table(
    "usage",
    metadata,
    numbered(),
    sa.Column("at", Number, nullable=False),
    to("projects"),
    to("runs"),
    to("attempts"),
    sa.Column("engine", Words, nullable=False),
    sa.Column("model", Words),
    *measures(),
    partial("ix_usage_run", "run_id", "id", where="run_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# The sums of `usage`, kept in the same transaction, so that a budget check never adds up history.
usage_totals = sa.Table(
    "usage_totals",
    metadata,
    sa.Column("scope", sa.String(16), primary_key=True),
    sa.Column("scope_id", Number, primary_key=True, autoincrement=False),
    *measures(),
)

# The same by day (since 1970, in UTC), kept with each row of `usage`. One row per run, whose total is held already, so
# that runs do not wait for each other; what is nobody's has run 0, and what names no model an empty one.
usage_days = sa.Table(
    "usage_days",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("run_id", Number, primary_key=True, autoincrement=False),
    sa.Column("engine", Words, primary_key=True),
    sa.Column("model", Words, primary_key=True),
    to("projects"),
    *measures(),
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


projects = sa.Table(
    "projects",
    metadata,
    numbered(),
    sa.Column("name", Words, nullable=False, unique=True),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number),
    sa.Column("git_url", Words),
    sa.Column("local_path", Words),
    sa.Column("base_branch", Words),
    sa.Column("ci_provider", sa.String(16)),
    sa.Column("default_models", Json),
    # What is found out about the repository, and what people settled: stack, checks, required checks, identity.
    sa.Column("facts", Json),
    # A key that both addresses of one repository share, so that a webhook finds its project by an index.
    sa.Column("remote", Words),
    sa.Column("token_hash", sa.String(64)),
    sa.Column("setup_run_id", Number),
    sa.Column("archived_at", Number),
    partial("ix_projects_remote", "remote", where="remote IS NOT NULL"),
    partial("ix_projects_token", "token_hash", where="token_hash IS NOT NULL"),
    sqlite_autoincrement=True,
)

# Write-only: what is kept is a ciphertext, and only a process that holds the key can read it.
project_secrets = sa.Table(
    "project_secrets",
    metadata,
    sa.Column("project_id", Number, sa.ForeignKey("projects.id"), primary_key=True, autoincrement=False),
    sa.Column("name", Words, primary_key=True),
    sa.Column("value", Words, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
)
