"""A batch of optimisation: the tools that are worth it most, one after the other, within a budget.

It is meant to be put on a schedule for the night. What is done is in the ledger, tool by tool: a batch that was killed
goes on with the tool it was at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from ratchet.kernel import Conflict, Misuse, NotFound, RunStatus, Superseded
from ratchet.ledger import change_run
from ratchet.ledger.runs import Run, list_runs
from ratchet.ledger.tools import find_tool
from ratchet.ledger.usage import total
from ratchet.runtime import JobContext, complete_run, enter_run, run_step
from ratchet.workflows.evolution.candidates import find_opportunities
from ratchet.workflows.evolution.degradation import Decision
from ratchet.workflows.evolution.evolving import Tell, announce, evolve_one
from ratchet.workflows.evolution.looking import note_look
from ratchet.workflows.evolution.starting import OPTIMISE_RUN, RUN_KIND, start_batch
from ratchet.workflows.evolution.wish import Wish, given_up

_LATELY = 50


async def optimise(job: JobContext, tell: Tell = announce) -> object:
    """The handler of `workflow.optimise`: a batch, or what a schedule fires, which starts one."""
    if job.job.run_id is None:
        return {"run_id": _started(job)}
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    plan = await run_step(job, "plan", lambda _: _planned(job, run))
    done: list[dict[str, Any]] = []
    stopped = "every tool that was worth it was tried"
    for wanted in plan["opportunities"]:
        job.give_way()
        left = partial(_seconds_left, run, plan)
        if left() <= 0:
            stopped = "the time is over"
            break
        work = partial(_evolve, job, run, wanted, tell, left)
        done.append(await run_step(job, f"evolve {wanted['tool']}", work))
        if done[-1]["exhausted"]:
            stopped = done[-1]["why"]
            break
    return _end(job, run, plan, done, stopped)


def _started(job: JobContext) -> int:
    """The run of a batch that a schedule asked for, once for each time it fired."""
    with job.write() as tx:
        for run in list_runs(tx, kind=RUN_KIND, name=OPTIMISE_RUN, limit=_LATELY):
            if run.spec.get("job") == job.job.id:
                return run.id
        return start_batch(tx, job.runtime, {**job.payload, "job": job.job.id})


async def _planned(job: JobContext, run: Run) -> dict[str, Any]:
    """What is worth doing now, and when this began. Every tool on the list counts as looked at."""
    settings = job.runtime.settings.workflows.evolution
    with job.write() as tx:
        found = find_opportunities(tx, settings, tx.now)[: run.spec.get("most")]
        for each in found:
            tool = find_tool(tx, each.tool, folder=each.folder)
            if tool is not None:
                note_look(tx, tool, Decision(True, each.why))
        return {"begun_at": tx.now, "opportunities": [asdict(each) for each in found]}


def _seconds_left(run: Run, plan: dict[str, Any]) -> float:
    seconds = run.spec.get("seconds")
    return math.inf if seconds is None else float(plan["begun_at"] / 1000 + seconds - time.time())


async def _evolve(
    job: JobContext,
    run: Run,
    wanted: dict[str, Any],
    tell: Tell,
    seconds_left: Callable[[], float],
    _attempt: int,
) -> dict[str, Any]:
    wish = Wish(
        wanted["tool"],
        wanted["folder"],
        why=wanted["why"],
        engine=run.spec.get("engine"),
        model=run.spec.get("model"),
        step=f"{wanted['tool']}: ",
    )
    try:
        evolved = await evolve_one(job, run, wish, tell=tell, seconds_left=seconds_left)
    except (Conflict, Misuse, NotFound) as error:
        if isinstance(error, Superseded):
            raise
        # What one tool cannot have must not keep the others from it.
        evolved = given_up(wish, [], str(error), exhausted=False)
    return evolved.data()


def _end(
    job: JobContext, run: Run, plan: dict[str, Any], done: list[dict[str, Any]], stopped: str
) -> dict[str, Any]:
    """Complete the run; one in which nothing could be tried at all has failed."""
    with job.write() as tx:
        result = {
            "tools": done,
            "promoted": [each["tool"] for each in done if each["promoted"]],
            "left": [each["tool"] for each in plan["opportunities"][len(done) :]],
            "stopped": stopped,
            "spent_usd": total(tx, "run", run.id).cost_usd,
        }
        if done and not any(each["judged"] for each in done):
            change_run(tx, run.id, RunStatus.FAILED, reason=done[-1]["why"], result=result)
        else:
            complete_run(tx, run.id, result)
    return result
