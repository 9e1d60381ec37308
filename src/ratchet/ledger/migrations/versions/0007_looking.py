"""What pages read that go over all runs: usage by day, and sessions by engine and by failure."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Words

revision = "0007"
down_revision = "0006"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MEASURES = ("input_tokens", "cached_tokens", "output_tokens", "cost_microusd", "wall_ms", "trials")
_DAY_MS = 86_400_000


def upgrade() -> None:
    op.create_table(
        "usage_days",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", Number, autoincrement=False, nullable=False),
        sa.Column("engine", Words, nullable=False),
        sa.Column("model", Words, nullable=False),
        sa.Column("project_id", Number, nullable=True),
        *(sa.Column(name, Number, nullable=False) for name in _MEASURES),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_usage_days_project_id")),
        sa.PrimaryKeyConstraint("day", "run_id", "engine", "model", name=op.f("pk_usage_days")),
    )
    sums = ", ".join(f"sum({name})" for name in _MEASURES)
    op.execute(
        f"INSERT INTO usage_days (day, run_id, engine, model, project_id, {', '.join(_MEASURES)})"
        f" SELECT at / {_DAY_MS}, coalesce(run_id, 0), engine, coalesce(model, ''), max(project_id), {sums}"
        f" FROM usage GROUP BY at / {_DAY_MS}, coalesce(run_id, 0), engine, coalesce(model, '')"
    )
    op.create_index("ix_sessions_engine", "sessions", ["engine", "id"], unique=False)
    op.create_index(
        "ix_sessions_failed",
        "sessions",
        ["id"],
        unique=False,
        sqlite_where=sa.text("failure IS NOT NULL"),
        postgresql_where=sa.text("failure IS NOT NULL"),
    )
