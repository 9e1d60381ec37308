"""What tokens cost, by the price table of the settings."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

from ratchet.config.llm_settings import Prices
from ratchet.kernel import Usage


def cost_microusd(usage: Usage, price: Prices | None) -> int:
    """In whole millionths of a dollar, rounded up: dollars for a million tokens are millionths for one."""
    if price is None:
        return 0
    cached = price.input if price.cached is None else price.cached
    exact = (
        _exact(price.input) * (usage.input_tokens - usage.cached_tokens)
        + _exact(cached) * usage.cached_tokens
        + _exact(price.output) * usage.output_tokens
    )
    return int(exact.to_integral_value(rounding=ROUND_CEILING))


def output_tokens_for(microusd: float, price: Prices) -> int | None:
    """The most tokens out that this money buys; `None` when they are free."""
    return int(Decimal(str(microusd)) / _exact(price.output)) if price.output else None


def _exact(dollars: float) -> Decimal:
    # By its shortest spelling: 0.15 is meant, not the binary fraction nearest to it.
    return Decimal(str(dollars))
