"""Check an engine before anything is paid for: what cannot work is reported at once, with the line to type."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable

from ratchet.engines.engine import Engine, Failure
from ratchet.engines.providers import default_engine, how_to_price, no_price
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.kernel import BudgetPolicy, Limits, Missing, RatchetError
from ratchet.runtime import Runtime

# As long as a request or a command that hands its work over may take to look.
_PATIENCE_SECONDS = 5.0


class NotReady(RatchetError):
    """An engine that could not be used now. Nothing was paid for.

    `is_local` says that something is not there, such as a program or a key: another machine may have it.
    """

    http_status = 424

    def __init__(self, message: str, *, hint: str | None, failure: Failure, is_local: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.failure = failure
        self.is_local = is_local
        self.exit_code = 3 if failure is Failure.MISSING else 1


async def require_ready(engine: Engine, *, cost_usd: float | None = None) -> None:
    """Raise `NotReady` unless a session could start now, and be held to a budget of `cost_usd` if there is one."""
    try:
        found = await engine.check()
    except Missing as error:
        raise NotReady(str(error), hint=error.hint, failure=Failure.MISSING, is_local=True) from error
    if not found.ready:
        raise NotReady(
            f"the engine {engine.name} is not ready: {found.detail}",
            hint=found.fix,
            failure=found.failure,
            is_local=found.failure is Failure.MISSING,
        )
    if cost_usd is not None and found.unpriced is not None:
        raise NotReady(
            no_price(found.unpriced, cost_usd), hint=how_to_price(found.unpriced), failure=Failure.MISSING
        )


def require_engines(
    runtime: Runtime, wanted: Iterable[tuple[str | None, str | None]], *, limits: Limits | None = None
) -> None:
    """`require_ready` for engines by their names, each with the model that it is to use, before anything is begun.

    `limits` are those of the run, if it has its own: they hold in place of the configured ones of a run. Not for use
    inside an event loop.
    """
    surroundings = EngineContext(runtime.settings, runtime.home, os.environ)
    opened = [open_engine(_named(name, model, surroundings), surroundings) for name, model in set(wanted)]
    budgets = runtime.settings.budgets
    most = [] if limits is None else [limits.cost_usd]
    if budgets.policy is BudgetPolicy.STRICT:
        most += [budgets.attempt.cost_usd, budgets.project.cost_usd]
        most += [budgets.run.cost_usd] if limits is None else []
    money = [each for each in most if each is not None]

    async def check_all() -> None:
        # The first problem is told at once; those that are still looked at are let go.
        await asyncio.gather(*(require_ready(engine, cost_usd=min(money, default=None)) for engine in opened))

    asyncio.run(check_all())


def check_for_worker(
    runtime: Runtime, check: Callable[[], None], *, seconds: float = _PATIENCE_SECONDS
) -> NotReady | None:
    """Call `check` before work is handed to a worker, from any face. Raises what it raises.

    Two things are left to the worker: a look that takes longer than `seconds`, as at an endpoint that hangs, and what
    is not there for this process unless it takes jobs itself: those that do may have it. The latter is returned.
    """
    problems: list[Exception] = []

    def look() -> None:
        try:
            check()
        except Exception as problem:  # noqa: BLE001 - raised below, where it is waited for
            problems.append(problem)

    # In a thread that is not waited for in the end: what hangs may be a name server, which cannot be cancelled.
    thread = threading.Thread(target=look, name="preflight", daemon=True)
    thread.start()
    thread.join(seconds)
    for problem in problems:
        if isinstance(problem, NotReady) and problem.is_local and not runtime.works_here:
            return problem
        raise problem
    return None


def _named(name: str | None, model: str | None, surroundings: EngineContext) -> str:
    """What to open to have that model looked at. A search has none, and a recording is named by its file."""
    engine = name or default_engine(surroundings.settings, surroundings.environment)
    plain = engine.partition(":")[0]
    return f"{plain}:{model}" if model and plain not in ("search", "replay") else engine
