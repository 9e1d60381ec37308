"""Looking at an engine before anything is paid for: what cannot work is said at once, with the line to type."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ratchet.engines.engine import Engine
from ratchet.engines.failure import Failure
from ratchet.engines.prices import how_to_price, no_price
from ratchet.engines.providers import default_engine
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.kernel import BudgetPolicy, RatchetError


class NotReady(RatchetError):
    """An engine that could not be used now. Nothing was paid for."""

    http_status = 503

    def __init__(self, message: str, *, hint: str | None, failure: Failure) -> None:
        super().__init__(message, hint=hint)
        self.failure = failure
        self.exit_code = 3 if failure is Failure.MISSING else 1


async def require_ready(engine: Engine, *, cost_usd: float | None = None) -> None:
    """Raise `NotReady` unless a session could start now, and be held to a budget of `cost_usd` if there is one."""
    found = await engine.check()
    if not found.ready:
        raise NotReady(
            f"the engine {engine.name} is not ready: {found.detail}", hint=found.mend, failure=found.failure
        )
    if cost_usd is not None and found.unpriced is not None:
        raise NotReady(
            no_price(found.unpriced, cost_usd),
            hint=how_to_price(found.unpriced),
            failure=Failure.MISSING,
        )


def require_engines(
    wanted: Iterable[tuple[str | None, str | None]],
    surroundings: Surroundings,
    *,
    cost_usd: float | None = None,
) -> None:
    """`require_ready` for engines by their names, each with the model that it is to use, before anything is begun.

    A budget of money that the settings give counts beside `cost_usd`. Not for use inside an event loop.
    """
    opened = [open_engine(_named(name, model, surroundings), surroundings) for name, model in set(wanted)]
    budgets = surroundings.settings.budgets
    scopes = (budgets.attempt, budgets.run, budgets.project) if budgets.policy is BudgetPolicy.STRICT else ()
    limits = [limit for limit in (cost_usd, *(each.cost_usd for each in scopes)) if limit is not None]

    async def check_all() -> None:
        looks = (require_ready(engine, cost_usd=min(limits, default=None)) for engine in opened)
        found = await asyncio.gather(*looks, return_exceptions=True)
        for problem in found:
            if isinstance(problem, BaseException):
                raise problem

    asyncio.run(check_all())


def _named(name: str | None, model: str | None, surroundings: Surroundings) -> str:
    """What to open to have that model looked at. A search has none, and a recording is named by its file."""
    engine = name or default_engine(surroundings.settings, surroundings.environment)
    plain = engine.partition(":")[0]
    return f"{plain}:{model}" if model and plain not in ("search", "replay") else engine
