"""Questions to people: approvals and clarifications."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, numbered, partial, to
from ratchet.ledger.tables._metadata import metadata

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
