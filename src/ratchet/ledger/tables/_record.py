"""What happened and what came out: events and artifacts."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Type, Words, numbered, partial, to
from ratchet.ledger.tables._metadata import metadata

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
