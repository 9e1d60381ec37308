"""What engines were used for, what it cost and what it may cost."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Number, Words, measures, numbered, partial, to
from ratchet.ledger.tables._metadata import metadata

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
