"""What was used of a budget, measure by measure."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from ratchet.config import Settings
from ratchet.kernel import Limits
from ratchet.ledger import Transaction
from ratchet.ledger.usage import Scope, budget_in_force, total
from ratchet.runtime import configured_budgets


def spent(tx: Transaction, settings: Settings, scope: Scope, number: int) -> dict[str, Any]:
    """The usage of an attempt, a run or a project so far, and the limits in force for it."""
    used = total(tx, scope, number)
    limits, policy = budget_in_force(tx, scope, number, configured_budgets(settings))
    return {
        "usage": asdict(used),
        "policy": str(policy),
        "measures": [
            {"name": each.name, "used": getattr(used, each.name), "limit": getattr(limits, each.name)}
            for each in fields(Limits)
        ],
    }
