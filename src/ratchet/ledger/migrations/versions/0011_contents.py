"""Contents of small artifacts in the database. Those that are files already stay files."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "artifact_contents",
        sa.Column("artifact_id", Number, nullable=False, autoincrement=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("artifact_id", name="pk_artifact_contents"),
        sa.ForeignKeyConstraint(
            ["artifact_id"], ["artifacts.id"], name="fk_artifact_contents_artifact_id", ondelete="CASCADE"
        ),
    )
