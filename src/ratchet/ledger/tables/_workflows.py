"""Workflows that were saved, and results of their steps."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, numbered, to
from ratchet.ledger.tables._metadata import metadata

# The workflows that were saved. A name has as many rows as it had contents; the last is the one that is run.
workflows = sa.Table(
    "workflows",
    metadata,
    numbered(),
    sa.Column("name", Words, nullable=False),
    sa.Column("version", Words, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("description", Words, nullable=False),
    sa.Column("spec", Json, nullable=False),
    sa.Column("origin", Words, nullable=False),
    sa.Column("removed", sa.Boolean, nullable=False),
    to("runs"),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_workflows_name", "name", "id"),
    sqlite_autoincrement=True,
)

# What a step came to, by what was run and what it was given.
step_results = sa.Table(
    "step_results",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", Json, nullable=False),
    sa.Column("metrics", Json, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_step_results_created", "created_at"),
)
