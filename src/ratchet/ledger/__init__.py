"""The ledger: tables, migrations, events, artifacts. The truth about everything that happened."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.ledger._columns import to_json
    from ratchet.ledger.artifacts import Artifact, ArtifactStore
    from ratchet.ledger.check import Collected, collect_artifacts
    from ratchet.ledger.events import Event, EventFilter, Topic
    from ratchet.ledger.ledger import Ledger, follow, follow_async, open_ledger
    from ratchet.ledger.runs import Attempt, Run, Step
    from ratchet.ledger.statuses import change_run, change_step
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.usage import Budgets, Spender
else:
    __getattr__ = on_demand(__name__)
