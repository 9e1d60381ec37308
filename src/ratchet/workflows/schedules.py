"""Workflows, and batches of optimisation, on a schedule.

A schedule fires a small job, and that starts the run: the workflow is looked up, and its tools are fixed, at the time
when it runs. However often the job is delivered, each time of the schedule has one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa

from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Misuse, RunId, RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.tables import jobs, runs
from ratchet.operations import Param, operation
from ratchet.runtime import JobContext, Missed, Runtime, get_schedule, read_when
from ratchet.runtime.call import Call
from ratchet.runtime.job import BACKGROUND, DEFAULT_PRIORITY, DEFAULT_QUEUE, find_once, run_key
from ratchet.runtime.operations.schedules import ScheduleAnswer, When, Zone
from ratchet.runtime.schedules import chosen_priority
from ratchet.workflows.files import BadWorkflow
from ratchet.workflows.jobs import OPTIMISE, SCHEDULED
from ratchet.workflows.runs import prepare, start_workflow
from ratchet.workflows.saved import load_saved


class Overlap(StrEnum):
    """What becomes of a time at which the run of an earlier one has not ended: no run, or one that waits for it."""

    SKIP = "skip"
    QUEUE = "queue"


def schedule_workflow(
    runtime: Runtime,
    name: str,
    when: str,
    workflow: str | WorkflowSpec,
    inputs: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    timezone: str = "UTC",
    missed: Missed | str = Missed.ONCE,
    priority: int = DEFAULT_PRIORITY,
    overlap: Overlap | str = Overlap.SKIP,
    cached: bool = True,
    actor: str,
    request_id: str | None = None,
) -> datetime:
    """Run a workflow whenever `when` comes; returns the first time.

    A name means what is saved under it at each time. A workflow that is given itself is kept as it is now; `folder` is
    where its paths start. Raises at once what would stop a run: `BadWorkflow`, `NotFound` or `Misuse`.
    """
    # The cheap questions first: making a workflow ready writes down the tools that it brings.
    read_when(when)
    policy = _overlap(overlap)
    spec = load_saved(runtime, workflow) if isinstance(workflow, str) else workflow
    given = dict(inputs or {})
    prepare(runtime, spec, given, folder=folder)
    payload = {
        "schedule": name,
        **({"workflow": workflow} if isinstance(workflow, str) else {"spec": write_spec(workflow)}),
        "folder": None if folder is None else str(folder),
        "inputs": given,
        "overlap": str(policy),
        "cached": cached,
    }
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        return runtime.put_schedule(
            tx,
            name,
            when,
            SCHEDULED,
            payload,
            timezone=timezone,
            key=f"schedule:{name}",
            priority=priority,
            missed=missed,
        )


def schedule_optimisation(
    runtime: Runtime,
    name: str,
    when: str,
    *,
    budget_usd: float | None = None,
    seconds: float | None = None,
    engine: str | None = None,
    most: int | None = None,
    timezone: str = "UTC",
    missed: Missed | str = Missed.ONCE,
    actor: str,
    request_id: str | None = None,
) -> datetime:
    """Make the tools better that are worth it most, whenever `when` comes. Always in the background."""
    wanted = {"budget_usd": budget_usd, "seconds": seconds, "engine": engine, "most": most}
    for key in ("budget_usd", "seconds", "most"):
        value = wanted[key]
        if isinstance(value, int | float) and not value > 0:
            raise Misuse(f"{key} must be above 0, not {value!r}")
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        return runtime.put_schedule(
            tx, name, when, OPTIMISE, wanted, timezone=timezone, priority=BACKGROUND, missed=missed
        )


async def start_scheduled(job: JobContext) -> object:
    """The handler of `workflow.scheduled`: starts the run of one time, unless an earlier one has not ended."""
    wanted = job.payload
    name, line = wanted["schedule"], f"schedule:{wanted['schedule']}"
    once = f"scheduled:{job.job.id}"
    with job.ledger.read() as tx:
        started = find_once(tx, once)
    if started is not None:
        return {"run_id": started.run_id}
    spec = load_saved(job.runtime, wanted["workflow"]) if "workflow" in wanted else read_spec(wanted["spec"])
    folder = None if wanted["folder"] is None else Path(wanted["folder"])
    try:
        plan = prepare(job.runtime, spec, wanted["inputs"], folder=folder, cached=wanted["cached"])
    except BadWorkflow as bad:
        # Trying again in a second would say the same.
        raise Misuse(f"schedule {name}: {bad}", hint=bad.hint) from bad
    with job.write() as tx:
        earlier = _unfinished(tx, line)
        if earlier is not None and wanted["overlap"] == Overlap.SKIP:
            reason = f"{name}: its run {earlier} has not ended"
            tx.event("schedule.skipped", run_id=earlier, job_id=job.job.id, message=reason)
            return {"skipped": reason}
        run_id = start_workflow(tx, job.runtime, plan, priority=job.job.priority, line=line, once=once)
    return {"run_id": run_id}


def _unfinished(tx: Transaction, line: str) -> RunId | None:
    """The run of an earlier time that has not ended, also one that waits for a person."""
    ended = [str(status) for status in RunStatus if status.final]
    carried = sa.exists().where(jobs.c.run_id == runs.c.id, jobs.c.key == run_key(0, line))
    query = sa.select(runs.c.id).where(runs.c.status.not_in(ended), carried).order_by(runs.c.id).limit(1)
    found = tx.connection.execute(query).scalar()
    return None if found is None else RunId(found)


def _overlap(overlap: Overlap | str) -> Overlap:
    try:
        return Overlap(overlap)
    except ValueError:
        raise Misuse(
            f"{overlap!r} is not a way to handle overlapping runs", hint=f"use {', '.join(Overlap)}"
        ) from None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of optimisation. It always runs in the background."""

    budget_usd: Annotated[float | None, Param(above=0)] = None
    seconds: Annotated[float | None, Param(above=0)] = None
    engine: Annotated[str | None, Param(engine=True)] = None
    most: Annotated[int | None, Param("how many tools it takes on", least=1)] = None


# What each thing that can be scheduled takes besides the times.
_OPTIONS = {
    "kind": ("payload", "queue", "key", "priority", "background"),
    "workflow": ("inputs", "overlap", "cached", "priority", "background"),
    "optimise": (),
}


@operation("schedule put", "POST /schedules")
def put(
    call: Call,
    name: str,
    when: When,
    kind: Annotated[str | None, Param("a kind of job")] = None,
    workflow: Annotated[str | None, Param("a saved workflow, run as it is saved at each time")] = None,
    optimise: Batch | None = None,
    payload: Annotated[Any, Param("what a job of a kind is given", engine=True)] = None,
    inputs: Annotated[dict[str, Any] | None, Param("what the workflow is given")] = None,
    overlap: Annotated[
        Overlap | None, Param("of a workflow whose run before has not ended; skip if null")
    ] = None,
    cached: Annotated[
        bool | None,
        Param("whether steps of the workflow whose result is known are not run again; true if null"),
    ] = None,
    timezone: Zone = "UTC",
    queue: Annotated[str | None, Param("`default` if null")] = None,
    key: Annotated[str | None, Param("jobs with the same key never overlap")] = None,
    missed: Annotated[Missed, Param("times that passed while no worker was there")] = Missed.ONCE,
    priority: Annotated[int | None, Param("0 is done first, 9 last; 5 if not given", least=0, most=9)] = None,
    background: Annotated[bool | None, Param("give way to all other work; the same as priority 9")] = None,
) -> ScheduleAnswer:
    """Make a schedule, or replace the one of that name.

    Exactly one of `kind`, `workflow` and `optimise` says what comes.
    """
    given = {"kind": kind, "workflow": workflow, "optimise": optimise, "payload": payload, "inputs": inputs}
    given |= {"overlap": overlap, "cached": cached, "queue": queue, "key": key, "priority": priority}
    _check_options({**given, "background": background})
    urgency = chosen_priority(priority, background or False)
    by: dict[str, Any] = {"actor": call.actor, "request_id": call.request_id}
    timing: dict[str, Any] = {"timezone": timezone, "missed": missed}
    if workflow is not None:
        how: dict[str, Any] = {"overlap": overlap or Overlap.SKIP, "cached": cached is not False}
        schedule_workflow(call.runtime, name, when, workflow, inputs, priority=urgency, **how, **timing, **by)
    elif optimise is not None:
        batch: dict[str, Any] = {each.name: getattr(optimise, each.name) for each in fields(Batch)}
        schedule_optimisation(call.runtime, name, when, **batch, **timing, **by)
    elif kind is not None:
        line: dict[str, Any] = {"queue": queue or DEFAULT_QUEUE, "key": key, "priority": urgency}
        with call.write() as tx:
            call.runtime.put_schedule(tx, name, when, kind, payload, **line, **timing)
    with call.read() as tx:
        return ScheduleAnswer.of(get_schedule(tx, name))


def _check_options(given: Mapping[str, Any]) -> None:
    things = [each for each in _OPTIONS if given[each] is not None]
    if len(things) != 1:
        raise Misuse("exactly one of kind, workflow and optimise must be given", hint="say what comes")
    foreign = {each for options in _OPTIONS.values() for each in options} - {*_OPTIONS[things[0]]}
    idle = sorted(each for each in foreign if given[each] is not None)
    if idle:
        raise Misuse(f"{', '.join(idle)} has no meaning with {things[0]}", hint="leave it out")


OPERATIONS = (put,)
