"""What tokens cost: by the prices of the settings, else by the public list of the package genai-prices."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any

from ratchet.engines.providers import maker_of
from ratchet.kernel import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

    from ratchet.config.llm_settings import Prices


def price_of(
    model: str | None,
    table: Mapping[str, Prices],
    *,
    place: str | None = None,
    url: str | None = None,
    keyless: bool = False,
    request_tokens: int = 0,
) -> Prices | None:
    """The price of `model` at the endpoint `place`, whose address is `url`. `None` is unknown, not nothing.

    The settings win, `place/model` before `model`. The public list is asked for the provider at `url`, or, where that
    is nobody it knows, for the maker of the model. A model that is asked without a key (`keyless`) costs nothing, as on
    a machine of your own, unless its maker sells it: then what answers is a proxy. Some models cost more in a request
    of many `request_tokens`.
    """
    if not model:
        return None
    own = (table.get(f"{place}/{model}") if place else None) or table.get(model)
    if own is not None:
        return own
    if keyless and not _is_sold(model):
        return _free()
    listed = _listed(model, url)
    return None if listed is None else _prices(listed, request_tokens)


def no_price(model: str, dollars: float) -> str:
    """Why a budget of money is refused."""
    return f"the price of {model} is not known, so a budget of {dollars:g} dollars cannot be kept"


def how_to_price(model: str) -> str:
    """What makes a budget of money possible, or does without one."""
    return (
        f'add [llm.prices."{model}"] with input = … and output = … to ratchet.toml, in dollars for a million tokens '
        "(0 if it costs nothing), or give a budget of tokens instead"
    )


def priced(usage: Usage, price: Prices | None) -> Usage:
    """`usage` with what it costs, or with its tokens marked as those of an unknown price."""
    if price is None:
        return replace(usage, unpriced_tokens=usage.tokens)
    return replace(usage, cost_microusd=cost_microusd(usage, price))


def cost_microusd(usage: Usage, price: Prices) -> int:
    """In whole millionths of a dollar, rounded up: dollars for a million tokens are millionths for one."""
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


def _is_sold(model: str) -> bool:
    maker = maker_of(model.rpartition("/")[2])
    return maker is not None and maker.key_variable is not None


def _free() -> Prices:
    from ratchet.config.llm_settings import Prices

    return Prices(input=0, output=0)


@functools.cache
def _listed(model: str, url: str | None) -> ModelPrice | None:
    # Slow to import, and most commands pay nobody.
    from genai_prices import Usage as NoUsage
    from genai_prices import calc_price

    # Agents of several providers name a model with its provider in front.
    names = (model, model.partition("/")[2]) if "/" in model else (model,)
    for name, address in itertools.product(names, (url, None) if url else (None,)):
        with contextlib.suppress(LookupError):
            return calc_price(NoUsage(), name, provider_api_url=address).model_price
    return None


def _prices(listed: ModelPrice, request_tokens: int) -> Prices | None:
    tokens_in, cached, tokens_out = (
        getattr(listed, name, None) for name in ("input_mtok", "cache_read_mtok", "output_mtok")
    )
    if tokens_in is None or tokens_out is None:
        return None
    # With pydantic, which commands that price nothing can do without.
    from ratchet.config.llm_settings import Prices

    return Prices(
        input=_at(tokens_in, request_tokens),
        cached=None if cached is None else _at(cached, request_tokens),
        output=_at(tokens_out, request_tokens),
    )


def _at(price: Any, request_tokens: int) -> float:
    """One price for a million tokens, of a request of this size."""
    dearest = price.base if hasattr(price, "base") else price
    for tier in getattr(price, "tiers", ()):
        dearest = tier.price if request_tokens > tier.start else dearest
    return float(dearest)
