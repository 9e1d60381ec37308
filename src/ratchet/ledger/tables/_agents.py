"""Agents and their versions."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, numbered, partial, to
from ratchet.ledger.tables._metadata import metadata

# A named, versioned pair of MCP servers. `current` is the commit that its address leads to.
agents = sa.Table(
    "agents",
    metadata,
    numbered(),
    sa.Column("name", Words, nullable=False),
    sa.Column("description", Words, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", Words),
    sa.Column("current", Words),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("engine", Words),
    sa.Column("model", Words),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
    # A name is free again once its agent is deleted.
    partial("uq_agents_name", "name", where="status <> 'deleted'", unique=True),
    sqlite_autoincrement=True,
)

# Every version that was ever promoted, or stands beside as a variant. `parent` is the commit it was made from.
agent_versions = sa.Table(
    "agent_versions",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("commit", Words, nullable=False),
    sa.Column("version", Words, nullable=False),
    sa.Column("parent", Words),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", Words),
    sa.Column("summary", Words, nullable=False),
    sa.Column("tools", Json, nullable=False),
    to("runs"),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    # When it last became the current one; empty again once it was taken back.
    sa.Column("promoted_at", Number),
    sa.UniqueConstraint("agent_id", "commit"),
    sa.Index("ix_agent_versions_agent", "agent_id", "id"),
    sa.Index("ix_agent_versions_version", "agent_id", "version", "id"),
    partial("ix_agent_versions_promoted", "agent_id", "promoted_at", where="promoted_at IS NOT NULL"),
    sqlite_autoincrement=True,
)
