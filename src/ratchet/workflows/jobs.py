"""The jobs of workflows. Every process knows the kinds; only the one that does the work needs what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.runtime import JobContext, Kinds, Runtime
    from ratchet.runtime.runtime import Companion


RUN = "workflow"
"""Carries a run."""
STEP = "workflow.step"
"""One step of a run that another worker carries."""
PLAN = "workflow.plan"
EVOLVE = "workflow.evolve"
OPTIMISE = "workflow.optimise"
SCHEDULED = "workflow.scheduled"
"""Starts a run at its time."""


def add_kinds(kinds: Kinds) -> None:
    kinds.add(RUN, _run)
    kinds.add(STEP, _step)
    kinds.add(PLAN, _plan)
    kinds.add(EVOLVE, _evolve)
    kinds.add(OPTIMISE, _optimise)
    kinds.add(SCHEDULED, _start_scheduled)
    kinds.beside(_watch_triggers)


def _watch_triggers(runtime: Runtime, process_id: str) -> Companion:
    from ratchet.workflows.trigger_watch import TriggerWatch

    return TriggerWatch(runtime, process_id)


async def _run(job: JobContext) -> object:
    from ratchet.workflows.runs.execution import run_workflow

    return await run_workflow(job)


async def _step(job: JobContext) -> object:
    from ratchet.workflows.runs.remote_calls import do_step

    return await do_step(job)


async def _plan(job: JobContext) -> object:
    from ratchet.workflows.overseer.planner import plan

    return await plan(job)


async def _evolve(job: JobContext) -> object:
    from ratchet.workflows.evolution.evolver import evolve

    return await evolve(job)


async def _optimise(job: JobContext) -> object:
    from ratchet.workflows.evolution.batch import optimise

    return await optimise(job)


async def _start_scheduled(job: JobContext) -> object:
    from ratchet.workflows.schedules import start_scheduled

    return await start_scheduled(job)
