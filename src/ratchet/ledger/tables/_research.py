"""Research: runs, their trials and specialists, and what was learned."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, measures, numbered, partial, to
from ratchet.ledger.tables._runs import metadata

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
    # The strategy that chose its parent, what else was shown, and what kind of program it is.
    sa.Column("origin", Json),
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

# A specialist of a research run: what it has used, and with what its engine continues.
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


protocols = sa.Table(
    "protocols",
    metadata,
    sa.Column("run_id", Number, sa.ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    to("projects", required=True),
    # The NNNN of its name; one whose name has none has no number.
    sa.Column("number", sa.Integer),
    sa.Column("name", Words, nullable=False),
    sa.Column("description", Words),
    sa.Column("base_branch", Words, nullable=False),
    sa.Column("base_commit", sa.String(64)),
    sa.Column("worktree_path", Words),
    sa.Column("protocol_root", Words),
    sa.Column("automatic", sa.Boolean, nullable=False),
    sa.Column("template_config", Json),
    sa.Column("template_source", Json),
    sa.Column("spec", Json),
    sa.Column("spec_hash", sa.String(64)),
    sa.Column("spec_status", sa.String(16)),
    sa.Column("spec_errors", Json),
    sa.Column("spec_validated_at", Number),
    # The last commit that the remote is known to have, and the pull request: provider, number, url, state, draft.
    sa.Column("pushed", sa.String(64)),
    sa.Column("pull_request", Json),
    sa.UniqueConstraint("project_id", "name"),
    sa.Index("ix_protocols_project", "project_id", "run_id"),
)

protocol_steps = sa.Table(
    "protocol_steps",
    metadata,
    sa.Column("step_id", Number, sa.ForeignKey("steps.id"), primary_key=True, autoincrement=False),
    to("runs", required=True),
    sa.Column("step_index", sa.Integer, nullable=False),
    sa.Column("step_type", Words, nullable=False),
    sa.Column("engine_id", Words),
    sa.Column("model", Words),
    sa.Column("policy", Json),
    sa.Column("runtime_state", Json),
    sa.Column("summary", Words),
    sa.Column("retries", sa.Integer, nullable=False),
    sa.Column("depends_on", Json),
    # Its newest commit on the branch, by which CI results find it, and whether that still waits for them.
    sa.Column("commit", sa.String(64)),
    sa.Column("awaits_ci", sa.Boolean, nullable=False),
    sa.UniqueConstraint("run_id", "step_index"),
    partial("ix_protocol_steps_commit", "commit", where='"commit" IS NOT NULL'),
)

# What a forge sent, by the id that it gave: the second time it changes nothing.
webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    numbered(),
    sa.Column("provider", sa.String(16), nullable=False),
    sa.Column("delivery", Words, nullable=False),
    to("projects", required=True),
    to("runs"),
    sa.Column("event", Words, nullable=False),
    sa.Column("outcome", Words, nullable=False),
    sa.Column("at", Number, nullable=False),
    sa.UniqueConstraint("project_id", "provider", "delivery"),
    sa.Index("ix_webhook_deliveries_at", "at"),
    sqlite_autoincrement=True,
)

# The newest word of each check about each commit.
ci_checks = sa.Table(
    "ci_checks",
    metadata,
    sa.Column("project_id", Number, sa.ForeignKey("projects.id"), primary_key=True, autoincrement=False),
    sa.Column("commit", sa.String(64), primary_key=True),
    sa.Column("name", Words, primary_key=True),
    sa.Column("provider", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("url", Words),
    # The failing job and step and the end of its log, as far as the forge told them.
    sa.Column("detail", Json),
    # The forge's own clock, so that a word that comes late does not undo a newer one.
    sa.Column("at", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
)
