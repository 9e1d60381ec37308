"""Tokens whose price is unknown, counted for the calls of tools as well."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TABLES = ("tool_versions", "tool_calls")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("unpriced_tokens", Number, nullable=False, server_default="0"))
        # Of what was recorded as free, no one can tell what it cost. A recorded answer costs nothing.
        op.execute(
            f"UPDATE {table} SET unpriced_tokens = tokens WHERE cost_microusd = 0 AND tokens > 0"
            + (" AND NOT simulated" if table == "tool_calls" else "")
        )
