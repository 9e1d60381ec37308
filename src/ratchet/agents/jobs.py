"""The jobs of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.ledger import Run, Transaction
    from ratchet.runtime import JobContext, Kinds, Runtime
    from ratchet.runtime.runtime import RunActions

KIND = "agents.change"
RUN_KIND = "agent"
LEARN = "agents.learn"
WATCH = "agents.watch"


def add_kinds(kinds: Kinds) -> None:
    kinds.add(KIND, _change)
    kinds.add(LEARN, _learn)
    kinds.add(WATCH, _watch)
    kinds.add_run(RUN_KIND, _actions)


def _actions(_tx: Transaction, _run: Run) -> RunActions:
    from ratchet.runtime.runtime import RunActions

    return RunActions(cancel=_cancel)


def _cancel(tx: Transaction, runtime: Runtime, run: Run, reason: str) -> None:
    """An agent whose creation is cancelled has failed, and its name is free."""
    from ratchet.ledger.agents import give_up_creation
    from ratchet.runtime.runs import cancel_any

    cancel_any(tx, runtime, run, reason)
    if (run.spec or {}).get("action") == "create":
        give_up_creation(tx, run.name, run_id=run.id, reason=reason)


async def _change(job: JobContext) -> object:
    # Every process knows the kind; only the one that does the work needs what it is made of.
    from ratchet.agents.change import change_agent

    return await change_agent(job)


def _learn(job: JobContext) -> object:
    from ratchet.agents.learning import learn

    return learn(job)


async def _watch(job: JobContext) -> object:
    from ratchet.agents.traffic import watch_evals

    return await watch_evals(job)
