"""The jobs of workflows. Every process knows the kinds; only the one that does the work needs what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.workflows import kinds as names

if TYPE_CHECKING:
    from ratchet.runtime import JobContext, Kinds


def add_kinds(kinds: Kinds) -> None:
    kinds.add(names.RUN, _run)
    kinds.add(names.STEP, _step)
    kinds.add(names.PLAN, _plan)
    kinds.add(names.EVOLVE, _evolve)
    kinds.add(names.OPTIMISE, _optimise)
    kinds.add(names.SCHEDULED, _start_scheduled)


async def _run(job: JobContext) -> object:
    from ratchet.workflows.running.carrying import run_workflow

    return await run_workflow(job)


async def _step(job: JobContext) -> object:
    from ratchet.workflows.running.offered import do_step

    return await do_step(job)


async def _plan(job: JobContext) -> object:
    from ratchet.workflows.overseer.planning import plan

    return await plan(job)


async def _evolve(job: JobContext) -> object:
    from ratchet.workflows.evolution.run import evolve

    return await evolve(job)


async def _optimise(job: JobContext) -> object:
    from ratchet.workflows.evolution.batch import optimise

    return await optimise(job)


async def _start_scheduled(job: JobContext) -> object:
    from ratchet.workflows.scheduling import start_scheduled

    return await start_scheduled(job)
