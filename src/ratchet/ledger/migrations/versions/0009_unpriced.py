"""Tokens whose price is unknown, counted apart from those that cost something known."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TABLES = ("sessions", "usage", "usage_totals", "usage_days", "specialists")
# A recording costs nobody anything. Of all else that was recorded as free, no one can tell what it cost.
_UNKNOWN = "cost_microusd = 0 AND engine NOT LIKE 'replay%'"


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("unpriced_tokens", Number, nullable=False, server_default="0"))
    for table in ("sessions", "usage"):
        op.execute(f"UPDATE {table} SET unpriced_tokens = input_tokens + output_tokens WHERE {_UNKNOWN}")
    for scope in ("attempt", "run", "project"):
        op.execute(
            "UPDATE usage_totals SET unpriced_tokens = coalesce((SELECT sum(u.unpriced_tokens) FROM usage u"
            f" WHERE u.{scope}_id = usage_totals.scope_id), 0) WHERE scope = '{scope}'"
        )
    op.execute(
        "UPDATE usage_days SET unpriced_tokens = coalesce((SELECT sum(u.unpriced_tokens) FROM usage u"
        " WHERE u.at / 86400000 = usage_days.day AND coalesce(u.run_id, 0) = usage_days.run_id"
        " AND u.engine = usage_days.engine AND coalesce(u.model, '') = usage_days.model), 0)"
    )
    op.execute(
        "UPDATE specialists SET unpriced_tokens = input_tokens + output_tokens WHERE cost_microusd = 0"
    )
