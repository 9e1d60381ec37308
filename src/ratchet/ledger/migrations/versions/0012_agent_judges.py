"""What judges an agent: evals, recorded calls, who approves, and the certificate of each version."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0012"
down_revision = "0011"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("agents", sa.Column("approval", sa.String(length=16), nullable=True))
    op.add_column("agent_versions", sa.Column("offers", Json, nullable=True))
    op.add_column("agent_versions", sa.Column("certificate", Json, nullable=True))
    _create(
        "agent_evals",
        sa.Column("server", sa.String(length=16), nullable=False),
        sa.Column("tool", Words, nullable=False),
        sa.Column("arguments", Json, nullable=False),
        sa.Column("expect", Json, nullable=False),
        sa.Column("note", Words, nullable=True),
        sa.Column("call_id", Number, nullable=True),
        sa.Column("created_by", Words, nullable=False),
        sa.Column("created_at", Number, nullable=False),
    )
    _create(
        "agent_calls",
        sa.Column("commit", Words, nullable=False),
        sa.Column("server", sa.String(length=16), nullable=False),
        sa.Column("tool", Words, nullable=False),
        sa.Column("arguments", Json, nullable=True),
        sa.Column("result", Json, nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("milliseconds", Number, nullable=False),
        sa.Column("is_whole", sa.Boolean(), nullable=False),
        sa.Column("created_at", Number, nullable=False),
    )


def _create(table: str, *columns: sa.Column[object]) -> None:
    """A table of things of one agent, of which the newest are read."""
    op.create_table(
        table,
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("agent_id", Number, nullable=False),
        *columns,
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f(f"fk_{table}_agent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        sqlite_autoincrement=True,
    )
    op.create_index(f"ix_{table}_agent", table, ["agent_id", "id"], unique=False)
