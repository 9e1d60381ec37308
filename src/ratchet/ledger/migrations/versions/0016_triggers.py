"""Triggers: where messages come from that each start a run of a workflow."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0016"
down_revision = "0015"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "triggers",
        sa.Column("name", Words, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("workflow", Words, nullable=False),
        sa.Column("source", Json, nullable=False),
        sa.Column("inputs", Json, nullable=False),
        sa.Column("takes", Words, nullable=True),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("started", Number, nullable=False),
        sa.Column("refused", Number, nullable=False),
        sa.Column("last_at", Number, nullable=True),
        sa.Column("reason", Words, nullable=True),
        sa.Column("reason_at", Number, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_triggers")),
    )
