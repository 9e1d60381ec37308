"""The tables of the loop: stages, sessions, holds on budgets, approvals."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0002"
down_revision = "0001"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "stages",
        sa.Column("attempt_id", Number, autoincrement=False, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("at", Number, nullable=False),
        sa.Column("data", Json, nullable=False),
        _foreign("stages", "attempt_id"),
        sa.PrimaryKeyConstraint("attempt_id", "name", name=op.f("pk_stages")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("attempt_id", Number, nullable=True),
        sa.Column("role", Words, nullable=False),
        sa.Column("engine", Words, nullable=False),
        sa.Column("model", Words, nullable=True),
        sa.Column("failure", Words, nullable=True),
        sa.Column("reason", Words, nullable=True),
        sa.Column("resume", Words, nullable=True),
        sa.Column("transcript", sa.String(length=64), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("input_tokens", Number, nullable=False),
        sa.Column("cached_tokens", Number, nullable=False),
        sa.Column("output_tokens", Number, nullable=False),
        sa.Column("cost_microusd", Number, nullable=False),
        sa.Column("wall_ms", Number, nullable=False),
        sa.Column("trials", Number, nullable=False),
        sa.Column("at", Number, nullable=False),
        _foreign("sessions", "run_id"),
        _foreign("sessions", "attempt_id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sqlite_autoincrement=True,
    )
    _index("ix_sessions_run", "sessions", "run_id", "id")
    _index("ix_sessions_attempt", "sessions", "attempt_id", "id")
    op.create_table(
        "holds",
        sa.Column("attempt_id", Number, autoincrement=False, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("project_id", Number, nullable=True),
        sa.Column("tokens", Number, nullable=False),
        sa.Column("cost_microusd", Number, nullable=False),
        _foreign("holds", "attempt_id"),
        _foreign("holds", "run_id"),
        _foreign("holds", "project_id"),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_holds")),
    )
    _index("ix_holds_run", "holds", "run_id")
    _index("ix_holds_project", "holds", "project_id")
    op.create_table(
        "approvals",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("attempt_id", Number, nullable=True),
        sa.Column("once", Words, nullable=False),
        sa.Column("subject", Words, nullable=False),
        sa.Column("question", Words, nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("status", Words, nullable=False),
        sa.Column("comment", Words, nullable=True),
        sa.Column("decided_by", Words, nullable=True),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("decided_at", Number, nullable=True),
        _foreign("approvals", "run_id"),
        _foreign("approvals", "attempt_id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
        sa.UniqueConstraint("once", name=op.f("uq_approvals_once")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_approvals_status", "approvals", ["status", "id"], unique=False)
    _index("ix_approvals_run", "approvals", "run_id", "id")


def _foreign(table: str, column: str) -> sa.ForeignKeyConstraint:
    other = f"{column.removesuffix('_id')}s"
    return sa.ForeignKeyConstraint([column], [f"{other}.id"], name=op.f(f"fk_{table}_{column}"))


def _index(name: str, table: str, column: str, *more: str) -> None:
    where = sa.text(f"{column} IS NOT NULL")
    op.create_index(name, table, [column, *more], unique=False, sqlite_where=where, postgresql_where=where)
