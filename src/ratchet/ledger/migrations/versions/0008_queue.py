"""The ledger as its own queue: jobs by their due time, and the starts that a rate limit counts.

Until here delays and limits were kept by DBOS, in tables beside these. Every job that waited there is a row of `jobs`
too, and is claimed from there now. DBOS's own tables are left alone, for a worker that still runs on them.
"""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Words

revision = "0008"
down_revision = "0007"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SCHEDULED = sa.text("status = 'scheduled'")


def upgrade() -> None:
    op.create_table(
        "job_starts",
        sa.Column("job_id", Number, autoincrement=False, nullable=False),
        sa.Column("delivery", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("queue", Words, nullable=False),
        sa.Column("at", Number, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "delivery", name=op.f("pk_job_starts")),
    )
    op.create_index("ix_job_starts_queue", "job_starts", ["queue", "at"], unique=False)
    op.create_index(
        "ix_jobs_due",
        "jobs",
        ["status", "due_at"],
        unique=False,
        sqlite_where=_SCHEDULED,
        postgresql_where=_SCHEDULED,
    )
    op.drop_table("components")
