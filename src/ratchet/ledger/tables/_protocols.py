"""Protocols: what a run of that kind has besides its run, and what the world outside says about it."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, numbered, partial, to
from ratchet.ledger.tables._metadata import metadata

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
