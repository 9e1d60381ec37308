"""Whether a prompt fits into what budgets have left, asked before anything is spent on it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ratchet.kernel import BudgetExceeded, BudgetPolicy, Limits
from ratchet.ledger import Transaction
from ratchet.ledger.usage import Spender, accounts
from ratchet.protocols.prompting import Prompt
from ratchet.protocols.stream import Stream
from ratchet.runtime import configured_budgets

_CHARACTERS_PER_TOKEN = 4


def require_room(stream: Stream, prompt: Prompt) -> None:
    """Raises `BudgetExceeded` for a prompt that alone is more than a strict budget has left; others only tell."""
    estimate = max(1, math.ceil(len(prompt.system + prompt.text) / _CHARACTERS_PER_TOKEN))
    with stream.job.write() as tx:
        for scope, number, limit, used, policy in _budgets(tx, stream):
            if policy is BudgetPolicy.OFF or used + estimate <= limit:
                continue
            if policy is BudgetPolicy.STRICT:
                raise BudgetExceeded(scope, number, "tokens", used + estimate, limit)
            told = f"the prompt has about {estimate} tokens, and {max(0, limit - used)} are left of {scope} {number}"
            stream.event(tx, "budget_warning", told)


def _budgets(tx: Transaction, stream: Stream) -> Iterator[tuple[str, object, int, int, BudgetPolicy]]:
    """Each budget that is limited in tokens: its scope, whose it is, its limit, what was used, and what it does."""
    defaults = configured_budgets(stream.job.runtime.settings)
    own = defaults.limits.get("attempt", Limits()).tokens
    if own is not None:
        yield "attempt", "of this step", own, 0, defaults.policy
    scopes = Spender(None, stream.protocol.run_id, stream.project.id).scopes()
    for each in accounts(tx, scopes, defaults):
        if each.limits.tokens is not None:
            yield each.scope, each.scope_id, each.limits.tokens, each.spent.tokens, each.policy
