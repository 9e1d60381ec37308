"""How long a run has really run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ratchet.kernel import RunId
from ratchet.ledger import Transaction
from ratchet.ledger.research import add_active

# Less is not worth a statement.
_LEAST_MS = 100


@dataclass(slots=True)
class Clock:
    """Counts each millisecond once, however many ask."""

    _marked: float = field(default_factory=time.monotonic)
    _counting: Transaction | None = None

    def count(self, tx: Transaction, run_id: RunId) -> None:
        """Write down what has passed: once in a transaction, whoever shares it, and again if it is rolled back."""
        ms = int((time.monotonic() - self._marked) * 1000)
        if ms < _LEAST_MS or self._counting is tx:
            return
        self._counting = tx
        add_active(tx, run_id, ms)
        tx.after_commit(lambda: self._mark(ms))

    def _mark(self, ms: int) -> None:
        self._marked += ms / 1000
