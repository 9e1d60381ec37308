"""What production shows of agents: calls counted, incidents, what callers remarked, and split traffic."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0015"
down_revision = "0014"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("agents", sa.Column("learning", sa.String(length=16), nullable=True))
    _create(
        "agent_call_totals",
        sa.Column("commit", Words, nullable=False),
        sa.Column("server", sa.String(length=16), nullable=False),
        sa.Column("tool", Words, nullable=False),
        *_numbers("calls", "failed", "errors", "milliseconds", "le_10", "le_25", "le_50", "le_100"),
        *_numbers("le_250", "le_1000", "le_5000", "le_30000", "updated_at"),
        unique=("commit", "server", "tool"),
    )
    op.create_index("ix_agent_call_totals_updated", "agent_call_totals", ["updated_at"], unique=False)
    _create(
        "agent_incidents",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("server", sa.String(length=16), nullable=False),
        sa.Column("tool", Words, nullable=False),
        sa.Column("message", Words, nullable=False),
        sa.Column("arguments", Json, nullable=True),
        sa.Column("expect", Json, nullable=True),
        sa.Column("is_whole", sa.Boolean(), nullable=False),
        *_numbers("count"),
        sa.Column("versions", Json, nullable=False),
        *_numbers("first_at", "last_at"),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("run_id", Number, nullable=True),
        unique=("fingerprint",),
        of_runs=True,
    )
    _index("agent_incidents")
    _partial("ix_agent_incidents_drift", "agent_incidents", where="kind = 'drift'")
    _create(
        "agent_feedback",
        sa.Column("commit", Words, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("message", Words, nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        *_numbers("count", "created_at", "last_at"),
        sa.Column("run_id", Number, nullable=True),
        unique=("commit", "digest"),
        of_runs=True,
    )
    _index("agent_feedback")
    _create(
        "agent_traffic",
        sa.Column("against", Words, nullable=False),
        sa.Column("candidate", Words, nullable=False),
        *_numbers("percent", "wanted_calls"),
        sa.Column("margin", sa.Float(), nullable=False),
        *_numbers("looks", "base_current", "base_current_wrong"),
        *_numbers("base_candidate", "base_candidate_wrong"),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", Words, nullable=True),
        *_numbers("created_at"),
        sa.Column("ended_at", Number, nullable=True),
    )
    _index("agent_traffic")
    _partial("ix_agent_traffic_asks", "agent_traffic", where="status = 'asks'")


def _numbers(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, Number, nullable=False) for name in names]


def _create(
    table: str, *columns: sa.Column[Any], unique: tuple[str, ...] = (), of_runs: bool = False
) -> None:
    """A table of things of one agent."""
    constraints: list[sa.Constraint] = [
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f(f"fk_{table}_agent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    ]
    if of_runs:
        constraints.append(sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f(f"fk_{table}_run_id")))
    if unique:
        names = ("agent_id", *unique)
        constraints.append(sa.UniqueConstraint(*names, name=op.f(f"uq_{table}_{'_'.join(names)}")))
    op.create_table(
        table,
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("agent_id", Number, nullable=False),
        *columns,
        *constraints,
        sqlite_autoincrement=True,
    )


def _index(table: str) -> None:
    op.create_index(f"ix_{table}_agent", table, ["agent_id", "id"], unique=False)


def _partial(name: str, table: str, *, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, ["id"], unique=False, sqlite_where=condition, postgresql_where=condition)
