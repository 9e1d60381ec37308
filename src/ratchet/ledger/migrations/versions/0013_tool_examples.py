"""How many of its examples a version of a tool fails. Nothing is known of those that are there."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("tool_versions", sa.Column("examples_failed", Number))
