"""The tables of tools and workflows, and how a schedule treats times that it missed."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0005"
down_revision = "0004"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "tools",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("folder", Words, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("source", Words, nullable=False),
        sa.Column("source_mark", Words, nullable=True),
        sa.Column("source_hash", sa.String(length=64), nullable=True),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.Column("current_id", Number, nullable=True),
        sa.Column("pinned_id", Number, nullable=True),
        sa.Column("revision", Number, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("updated_at", Number, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tools")),
        sa.UniqueConstraint("folder", "name", name=op.f("uq_tools_folder_name")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tools_revision", "tools", ["revision"], unique=False)
    op.create_table(
        "tool_versions",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("tool_id", Number, nullable=False),
        sa.Column("version", Words, nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("definition", Json, nullable=False),
        sa.Column("change_type", sa.String(length=16), nullable=False),
        sa.Column("parent_id", Number, nullable=True),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", Words, nullable=True),
        sa.Column("verdict", Json, nullable=True),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("promoted_at", Number, nullable=True),
        sa.Column("calls", Number, nullable=False),
        sa.Column("failures", Number, nullable=False),
        sa.Column("wall_ms", sa.Float(precision=53), nullable=False),
        sa.Column("cost_microusd", Number, nullable=False),
        sa.Column("tokens", Number, nullable=False),
        sa.Column("scored", Number, nullable=False),
        sa.Column("score_sum", sa.Float(precision=53), nullable=False),
        _foreign("tool_versions", "tool_id", "tools"),
        _foreign("tool_versions", "run_id", "runs"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_versions")),
        sa.UniqueConstraint("tool_id", "hash", name=op.f("uq_tool_versions_tool_id_hash")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tool_versions_tool", "tool_versions", ["tool_id", "id"], unique=False)
    op.create_index("ix_tool_versions_version", "tool_versions", ["tool_id", "version", "id"], unique=False)
    _partial(
        "ix_tool_versions_promoted",
        "tool_versions",
        "tool_id",
        "promoted_at",
        where="promoted_at IS NOT NULL",
    )
    op.create_table(
        "tool_calls",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("tool_id", Number, nullable=False),
        sa.Column("version_id", Number, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("step", Words, nullable=True),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("error", Words, nullable=True),
        sa.Column("wall_ms", sa.Float(precision=53), nullable=False),
        sa.Column("cpu_ms", sa.Float(precision=53), nullable=True),
        sa.Column("peak_bytes", Number, nullable=True),
        sa.Column("cost_microusd", Number, nullable=False),
        sa.Column("tokens", Number, nullable=False),
        sa.Column("score", sa.Float(precision=53), nullable=True),
        sa.Column("input", Json, nullable=True),
        sa.Column("output", Json, nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("at", Number, nullable=False),
        _foreign("tool_calls", "tool_id", "tools"),
        _foreign("tool_calls", "version_id", "tool_versions"),
        _foreign("tool_calls", "run_id", "runs"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_calls")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tool_calls_tool", "tool_calls", ["tool_id", "at"], unique=False)
    op.create_index("ix_tool_calls_version", "tool_calls", ["version_id", "id"], unique=False)
    _partial("ix_tool_calls_run", "tool_calls", "run_id", "id", where="run_id IS NOT NULL")
    op.create_table(
        "tool_starts",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("tool_id", Number, nullable=False),
        sa.Column("at", Number, nullable=False),
        _foreign("tool_starts", "tool_id", "tools"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_starts")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tool_starts_tool", "tool_starts", ["tool_id", "at"], unique=False)
    op.create_table(
        "tool_buffers",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("value", Json, nullable=True),
        sa.Column("at", Number, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_buffers")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tool_buffers_name", "tool_buffers", ["name", "id"], unique=False)
    op.create_table(
        "workflows",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("version", Words, nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("description", Words, nullable=False),
        sa.Column("spec", Json, nullable=False),
        sa.Column("origin", Words, nullable=False),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("created_at", Number, nullable=False),
        _foreign("workflows", "run_id", "runs"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflows")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_workflows_name", "workflows", ["name", "id"], unique=False)
    op.create_table(
        "step_results",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", Json, nullable=False),
        sa.Column("metrics", Json, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_step_results")),
    )
    op.create_index("ix_step_results_created", "step_results", ["created_at"], unique=False)
    op.add_column("schedules", sa.Column("seen_at", Number, nullable=True))
    op.add_column("schedules", sa.Column("missed", sa.String(length=16), nullable=True))
    op.add_column("schedules", sa.Column("priority", sa.Integer(), nullable=True))
    op.add_column("schedules", sa.Column("words", Words, nullable=True))


def _foreign(table: str, column: str, other: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{other}.id"], name=op.f(f"fk_{table}_{column}"))


def _partial(name: str, table: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(
        name, table, list(columns), unique=False, sqlite_where=condition, postgresql_where=condition
    )
