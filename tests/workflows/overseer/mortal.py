"""The real overseer, whose process may die at a named stage, once."""

from __future__ import annotations

from ratchet.runtime import JobContext
from ratchet.workflows.overseer import plan
from ratchet.workflows.overseer.context import announce
from tests.runtime.deaths import pass_by


async def plan_mortally(job: JobContext) -> object:
    return await plan(job, tell=_tell)


def _tell(job: JobContext, stage: str) -> None:
    announce(job, stage)
    pass_by(job.runtime.home, stage)
