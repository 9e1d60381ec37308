"""The tables of agents and their versions."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0004"
down_revision = "0003"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("description", Words, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", Words, nullable=True),
        sa.Column("current", Words, nullable=True),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("engine", Words, nullable=True),
        sa.Column("model", Words, nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("updated_at", Number, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
        sqlite_autoincrement=True,
    )
    _index("uq_agents_name", "agents", "name", where="status <> 'deleted'", unique=True)
    op.create_table(
        "agent_versions",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("agent_id", Number, nullable=False),
        sa.Column("commit", Words, nullable=False),
        sa.Column("version", Words, nullable=False),
        sa.Column("parent", Words, nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", Words, nullable=True),
        sa.Column("summary", Words, nullable=False),
        sa.Column("tools", Json, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("promoted_at", Number, nullable=True),
        _foreign("agent_id", "agents"),
        _foreign("run_id", "runs"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_versions")),
        sa.UniqueConstraint("agent_id", "commit", name=op.f("uq_agent_versions_agent_id_commit")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_agent_versions_agent", "agent_versions", ["agent_id", "id"], unique=False)
    op.create_index(
        "ix_agent_versions_version", "agent_versions", ["agent_id", "version", "id"], unique=False
    )
    _index(
        "ix_agent_versions_promoted",
        "agent_versions",
        "agent_id",
        "promoted_at",
        where="promoted_at IS NOT NULL",
    )


def _foreign(column: str, other: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{other}.id"], name=op.f(f"fk_agent_versions_{column}"))


def _index(name: str, table: str, *columns: str, where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(
        name, table, list(columns), unique=unique, sqlite_where=condition, postgresql_where=condition
    )
