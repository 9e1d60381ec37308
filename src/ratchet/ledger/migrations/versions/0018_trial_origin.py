"""Where a trial came from: the strategy of its session, what it was shown, what kind of program it is."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("trials", sa.Column("origin", Json))
