"""Research: runs, their trials and specialists, and what was learned."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, measures, numbered, partial, to
from ratchet.ledger.tables._metadata import metadata

# What a research run is and where it stands: one row that changes with every trial, so that no view adds up history.
research = sa.Table(
    "research",
    metadata,
    sa.Column("run_id", Number, sa.ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    sa.Column("task", Words, nullable=False),
    sa.Column("score_field", Words, nullable=False),
    sa.Column("direction", sa.String(8), nullable=False),
    sa.Column("keep_policy", Words, nullable=False),
    sa.Column("next_number", sa.Integer, nullable=False),
    # Trials that count, the baseline and infrastructure errors not among them.
    sa.Column("trials", Number, nullable=False),
    sa.Column("baseline", Json),
    sa.Column("best", sa.Integer),
    sa.Column("best_score", sa.Float(53)),
    sa.Column("best_commit", Words),
    # Time in which the run really ran, in all, and when the best was kept.
    sa.Column("active_ms", Number, nullable=False),
    sa.Column("kept_at_ms", Number, nullable=False),
)

trials = sa.Table(
    "trials",
    metadata,
    numbered(),
    to("runs", required=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("parent", sa.Integer),
    sa.Column("depth", sa.Integer, nullable=False),
    sa.Column("compared_to", sa.Integer),
    sa.Column("specialist", Words, nullable=False),
    sa.Column("domain", Words, nullable=False),
    sa.Column("hypothesis", Words, nullable=False),
    sa.Column("expected_delta", Words, nullable=False),
    sa.Column("notes", Words, nullable=False),
    sa.Column("commit", Words),
    to("attempts"),
    sa.Column("proposal", Json),
    sa.Column("simulated", sa.Boolean, nullable=False),
    # NULL while it is in flight.
    sa.Column("status", sa.String(32)),
    sa.Column("score", sa.Float(53)),
    sa.Column("delta", sa.Float(53)),
    sa.Column("reason", Words),
    sa.Column("measurements", Json),
    sa.Column("evaluator", sa.String(64)),
    sa.Column("certificate", sa.String(64)),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("wall_ms", Number),
    # The row of another system that it was imported from, word for word.
    sa.Column("imported", Json),
    sa.Column("started_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.UniqueConstraint("run_id", "number"),
    sa.Index("ix_trials_parent", "run_id", "parent", "number"),
    sa.Index("ix_trials_specialist", "run_id", "specialist", "number"),
    partial("ix_trials_kept", "run_id", "number", where="status IN ('baseline', 'keep')"),
    partial(
        "ix_trials_missed",
        "run_id",
        "score",
        where="score IS NOT NULL AND status NOT IN ('baseline', 'keep', 'infra_error', 'harness_abort')",
    ),
    partial("ix_trials_in_flight", "run_id", "number", where="status IS NULL"),
    sqlite_autoincrement=True,
)

# How many trials of a specialist ended how, kept with each of them.
trial_tallies = sa.Table(
    "trial_tallies",
    metadata,
    sa.Column("run_id", Number, sa.ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    sa.Column("specialist", Words, primary_key=True),
    sa.Column("status", sa.String(32), primary_key=True),
    sa.Column("count", Number, nullable=False),
)

# A specialist of a research run: what it has used, and with what its engine goes on.
specialists = sa.Table(
    "specialists",
    metadata,
    sa.Column("run_id", Number, sa.ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    sa.Column("name", Words, primary_key=True),
    sa.Column("sessions", Number, nullable=False),
    # Failed sessions in a row.
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("problem", Words),
    sa.Column("resume", Words),
    # The last trial whose result its engine has been told.
    sa.Column("told", sa.Integer, nullable=False),
    *measures(),
    sa.Column("updated_at", Number, nullable=False),
)

# What specialists have learned, in their own words.
lessons = sa.Table(
    "lessons",
    metadata,
    numbered(),
    to("runs", required=True),
    sa.Column("specialist", Words, nullable=False),
    sa.Column("trial", sa.Integer),
    sa.Column("text", Words, nullable=False),
    sa.Column("at", Number, nullable=False),
    sa.Index("ix_lessons_run", "run_id", "id"),
    sqlite_autoincrement=True,
)
