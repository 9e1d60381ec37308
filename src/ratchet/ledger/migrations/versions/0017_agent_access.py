"""Who may use an agent, what its servers may connect to, and the secrets that they are given."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0017"
down_revision = "0016"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("agents", sa.Column("egress", Json, nullable=True))
    op.create_table(
        "agent_keys",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("agent_id", Number, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("scopes", Json, nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("created_by", Words, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_agent_keys_agent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_keys")),
        sa.UniqueConstraint("agent_id", "name", name=op.f("uq_agent_keys_agent_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "agent_secrets",
        sa.Column("agent_id", Number, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("value", Words, nullable=False),
        sa.Column("updated_at", Number, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_agent_secrets_agent_id")),
        sa.PrimaryKeyConstraint("agent_id", "name", name=op.f("pk_agent_secrets")),
    )
