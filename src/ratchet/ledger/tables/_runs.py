"""Runs and what they are made of."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, numbered, partial, to
from ratchet.ledger.tables._metadata import metadata

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

# What an attempt has finished so far: a restart goes on behind the last one.
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
