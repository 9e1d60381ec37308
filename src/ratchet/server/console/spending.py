"""What was used of a budget, measure by measure."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from ratchet.config import Settings
from ratchet.kernel import Limits
from ratchet.ledger import Transaction
from ratchet.ledger.usage import Scope, account
from ratchet.runtime import configured_budgets


def spent(tx: Transaction, settings: Settings, scope: Scope, number: int) -> dict[str, Any]:
    """The usage of an attempt, a run or a project so far, and the limits in force for it."""
    found = account(tx, scope, number, configured_budgets(settings))
    used = found.spent
    return {
        "usage": asdict(used),
        "policy": str(found.policy),
        "measures": [
            {"name": each.name, "used": getattr(used, each.name), "limit": getattr(found.limits, each.name)}
            for each in fields(Limits)
        ],
    }
