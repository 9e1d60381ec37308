"""What a person answers to an approval that asks for more than yes or no."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("answer", Json))
