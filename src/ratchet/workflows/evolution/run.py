"""The run that makes one tool better."""

from __future__ import annotations

import asyncio

from ratchet.kernel import RunStatus
from ratchet.ledger import change_run
from ratchet.runtime import JobContext, complete_run, enter_run
from ratchet.workflows.evolution.evolving import Tell, announce, evolve_one
from ratchet.workflows.evolution.telling import remember_promotion
from ratchet.workflows.evolution.wish import Wish


async def evolve(job: JobContext, tell: Tell = announce) -> object:
    """The handler of `workflow.evolve`. That nothing better was found is a result; that nobody could try is not."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    wanted = {key: value for key, value in run.spec.items() if value is not None}
    wish = Wish(**wanted)
    evolved = await evolve_one(job, run, wish, tell=tell)
    result = evolved.data()
    with job.write() as tx:
        if evolved.judged:
            complete_run(tx, run.id, result)
        else:
            change_run(tx, run.id, RunStatus.FAILED, reason=evolved.why, result=result)
    await asyncio.to_thread(remember_promotion, job.runtime, run, wish, evolved)
    return result
