"""Projects and their secrets."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, numbered, partial
from ratchet.ledger.tables._metadata import metadata

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
