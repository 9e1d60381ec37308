"""The real runs, whose process may die at any of their stages."""

from __future__ import annotations

from ratchet.runtime import JobContext
from ratchet.workflows.evolution import evolve, optimise
from ratchet.workflows.evolution.evolver import announce
from tests.runtime.deaths import pass_by


async def evolve_mortally(job: JobContext) -> object:
    return await evolve(job, _tell)


async def optimise_mortally(job: JobContext) -> object:
    return await optimise(job, _tell)


def _tell(job: JobContext, stage: str) -> None:
    announce(job, stage)
    pass_by(job.runtime.home, stage)
