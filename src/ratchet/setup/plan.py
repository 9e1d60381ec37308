"""Which settings follow from what was found, who then works and reviews, and what a run costs at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.config import Settings
from ratchet.config.llm_settings import Prices
from ratchet.config.sources import Key
from ratchet.engines.agent_model import agent_model
from ratchet.engines.llm.call import candidate_price
from ratchet.engines.llm.choice import candidates
from ratchet.engines.providers import no_price, price_of
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.kernel import Limits, Misuse, RatchetError, dollars, with_hint
from ratchet.protocols.engine_choice import Reviewer, require_reviewer
from ratchet.setup.means import Means

FIRST_RUN_USD = 5.0
"""What one run may cost until somebody says otherwise."""
FIRST_RUN_TOKENS = 2_000_000


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """`settings` are what would be written, and no key that is set already; model and price are those in force then."""

    means: Means
    engine: str
    model: str | None
    price: Prices | None
    settings: Mapping[Key, Any]


def costs_at_most(plan: SetupPlan, settings: Settings) -> str:
    """What one run costs at most with these settings, in words."""
    if plan.means.kind == "login":
        return "nothing beyond the subscription"
    if plan.price is not None and not plan.price.input and not plan.price.output:
        return "nothing: the model runs on this machine"
    limits = settings.budgets.run
    if limits.cost_usd is not None and plan.price is None:
        return f"nothing runs: {no_price(plan.model or 'its model', limits.cost_usd)}"
    if limits.cost_usd is not None:
        return f"{dollars(limits.cost_usd)} (budgets.run.cost_usd)"
    if limits.tokens is not None:
        return f"the price of {limits.tokens:,} tokens (budgets.run.tokens)"
    return "not bounded: set budgets.run.cost_usd"


def plan_for(
    means: Means, others: Sequence[Means], around: Surroundings, is_set: Callable[[str], bool]
) -> SetupPlan:
    """What to set so that every flow works with `means`; `others` may answer where it cannot.

    A run is bounded in money, or in tokens where the price is unknown, unless its budget is set already.
    """
    engine, named = _in_force(means, around.settings, is_set)
    chosen = agent_model(named, means.agent, getattr(around.settings.engines, means.agent), around)
    price = price_of(
        chosen.model,
        around.settings.llm.prices,
        url=chosen.base_url,
        keyless=not chosen.key_variable,
    )
    settings: dict[Key, Any] = {("engines", "default"): means.agent}
    if means.model is not None:
        settings["engines", means.agent, "model"] = means.model
    plain = next((each.model for each in (means, *others) if each.is_plain and each.model), None)
    if plain is not None:
        settings["llm", "default"] = plain
    else:
        # Nobody answers plain questions, so the agent does.
        for key in (("workflows", "overseer"), ("workflows", "llm"), ("agents", "llm")):
            settings[key] = means.agent
    if means.kind == "key" and around.settings.budgets.run.limits == Limits():
        name, most = ("tokens", FIRST_RUN_TOKENS) if price is None else ("cost_usd", FIRST_RUN_USD)
        settings["budgets", "run", name] = most
    unset = {key: value for key, value in settings.items() if not is_set(".".join(key))}
    return SetupPlan(means, engine, chosen.model, price, unset)


def _in_force(means: Means, settings: Settings, is_set: Callable[[str], bool]) -> tuple[str, str | None]:
    """The engine that will work, and the model that is named to it: what is set already stays. Raises `Misuse`."""
    engine = settings.engines.default if is_set("engines.default") else means.agent
    plain, _, option = engine.partition(":")
    if plain != means.agent:
        raise Misuse(
            f"engines.default is {engine!r}, which works with something else",
            hint=f"set engines.default to {means.agent}, or see what {plain} needs with `ratchet engine check {plain}`",
        )
    return engine, option or (None if is_set(f"engines.{plain}.model") else means.model)


def plain_model(settings: Settings, agent: str, environment: Mapping[str, str]) -> str:
    """Who answers plain questions with these settings, and what is wrong with that, in words."""
    name = settings.llm.default
    if name is None:
        return agent
    try:
        unpriced = (
            candidate_price(candidates(name, settings.llm, environment)[0], settings.llm.prices) is None
        )
    except RatchetError as error:
        return f"{name}, which cannot be asked: {with_hint(error)}"
    return f"{name} (its price is not known)" if unpriced else name


def reviewer_in(around: Surroundings) -> Reviewer:
    """Who would review with these settings. Raises `Blocked`. Not for an event loop."""
    return require_reviewer(around, None, None, open_engine)
