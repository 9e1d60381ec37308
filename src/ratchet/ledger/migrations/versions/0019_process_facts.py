"""What a process knows of its machine, and how often it was asked for that."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("processes", sa.Column("asked", sa.Integer, nullable=False, server_default="0"))
    op.add_column("processes", sa.Column("facts", Json))
