"""One run of the overseer: a sentence becomes a saved workflow, or a reason why not.

Every session ends with a checkpoint in the ledger, so a process that is started again resumes behind it, and nothing is
saved before the very end, which is one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ratchet.engines.registry import open_engine
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WORKFLOW_ID, WorkflowSpec, name_problem
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Conflict, RunStatus
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.runs import find_step, get_run
from ratchet.ledger.tools import Source, find_tool
from ratchet.ledger.usage import total
from ratchet.ledger.workflows import SavedWorkflow, content_hash, find_workflow, save_workflow
from ratchet.memory import Memory, MemoryFault, open_memory
from ratchet.question import NoAnswer
from ratchet.runtime import JobContext, complete_run, enter_run
from ratchet.tools.registry import open_toolbox
from ratchet.tools.sync import record_tool
from ratchet.workflows.memory import remember_failure, remember_fix, remember_plan
from ratchet.workflows.overseer.context import Announce, Opener, PlanningContext, announce, surroundings
from ratchet.workflows.overseer.proposal import (
    ROLE,
    STEP,
    PlanSearch,
    ProposedWorkflow,
    confirmed,
    look_for_plan,
    propose_plan,
)
from ratchet.workflows.overseer.request import SIMULATED, Planned, slug
from ratchet.workflows.overseer.tool_writer import Made, make_tools

_LONGEST_OWN_NAME = 60


async def plan(job: JobContext, opener: Opener = open_engine, tell: Announce = announce) -> object:
    """Plan a workflow for the sentence of the run, unless a remembered plan will do."""
    with job.ledger.read() as tx:
        run = get_run(tx, job.run_id)
    if run.status.final:
        return str(run.status)
    with contextlib.ExitStack() as stack:
        work = await asyncio.to_thread(_open, job, opener, tell, stack)
        return await _carry(work)


async def _carry(work: PlanningContext) -> str:
    """In a word, what came of it."""
    given = work.spec.get("fill")
    found = await asyncio.to_thread(look_for_plan, work) if given is None else PlanSearch()
    if found.reuse is not None and not _is_begun(work):
        end_reused(work, found)
        return "reused"
    try:
        if found.near is not None and not _is_begun(work):
            fits = await confirmed(work, found.near)
            if fits is not None:
                end_reused(work, fits)
                return "reused"
        proposed = (
            await propose_plan(work, found.template)
            if given is None
            else ProposedWorkflow(read_spec(given), None, ())
        )
        made = await make_tools(work, proposed.spec)
    except NoAnswer as refused:
        if refused.is_permanent:
            block(work, refused)
            return "blocked"
        await asyncio.to_thread(end_failed, work, refused)
        return "failed"
    await asyncio.to_thread(end_planned, work, proposed, made)
    return "planned"


def _is_begun(work: PlanningContext) -> bool:
    """Whether the overseer has been asked already, in an earlier process of this run."""
    with work.job.ledger.read() as tx:
        return find_step(tx, work.run.id, STEP) is not None


def _open(job: JobContext, opener: Opener, tell: Announce, stack: contextlib.ExitStack) -> PlanningContext:
    """The run, running, with everything that it needs; the stack closes it."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    runtime = job.runtime
    engine = opener(run.spec["engine"], surroundings(job))
    toolbox = open_toolbox(job.ledger, runtime.settings, runtime.home)
    stack.callback(toolbox.close)
    notes: list[str] = []
    return PlanningContext(job, run, engine, toolbox, _memory(job, stack, notes), tell, notes)


def _memory(job: JobContext, stack: contextlib.ExitStack, notes: list[str]) -> Memory | None:
    try:
        memory = open_memory(job.runtime.settings.memory, job.runtime.home)
    except MemoryFault as fault:
        # A memory that is out of reach costs a session, not the plan.
        notes.append(f"the memory cannot be used: {fault}")
        return None
    return stack.enter_context(contextlib.closing(memory))


def end_planned(work: PlanningContext, proposed: ProposedWorkflow, made: Made) -> None:
    """Save the workflow and complete the run, in one transaction. This is the moment in which the plan counts.

    It is remembered before, since nothing waits for a run that has ended; a memory of what was never saved is not used.
    """
    with work.job.ledger.read() as tx:
        spec = replace(made.spec, workflow_id=_free_name(tx, work, made.spec))
    repaired = (*proposed.repaired, *made.repaired)
    _remember_planned(work, spec, repaired)
    work.passed("remembered")
    with work.job.write() as tx:
        run = get_run(tx, work.run.id)
        _require_free(tx, work, spec.workflow_id)
        origin = SIMULATED if run.used_recording else ROLE
        saved = save_workflow(tx, write_spec(spec), origin=origin, run_id=run.id)
        planned = _planned(
            tx,
            work,
            saved,
            template=proposed.template,
            tools_generated=tuple(made.tools),
            tools_kept=_keep(tx, work, made),
            repaired=repaired,
            simulated=run.used_recording,
        )
        data = {"workflow": saved.name, "steps": [step.step_id for step in spec.steps]}
        data["tools_generated"] = list(made.tools)
        tx.event("workflow.planned", message=f"{saved.name} {saved.version}", run_id=run.id, data=data)
        complete_run(tx, run.id, planned.data)


def end_reused(work: PlanningContext, found: PlanSearch) -> None:
    """Complete the run with a workflow that was there already."""
    reused, saved = found.reuse, found.saved
    assert reused is not None
    assert saved is not None
    with work.job.write() as tx:
        planned = _planned(tx, work, saved, reused=reused, simulated=saved.origin == SIMULATED)
        data = {"workflow": saved.name, "likeness": reused.likeness, "sentence": reused.sentence}
        message = f"{saved.name} is used again: {reused.reason}"
        tx.event(
            "workflow.reused", message=message, run_id=work.run.id, data=data | {"reason": reused.reason}
        )
        complete_run(tx, work.run.id, planned.data)


def block(work: PlanningContext, refused: NoAnswer) -> None:
    """Leave the run to a person: no session can work until something is changed. Resumed, it asks again."""
    result = {"step": refused.step, "problems": list(refused.problems), "notes": list(work.notes)}
    with work.job.write() as tx:
        change_run(tx, work.run.id, RunStatus.BLOCKED, reason="; ".join(refused.problems), result=result)


def end_failed(work: PlanningContext, refused: NoAnswer) -> None:
    """Fail the run with the reasons; nothing was saved."""
    with _remembering(work) as memory:
        if memory is not None and refused.teaches:
            remember_failure(
                memory,
                run_id=work.run.id,
                sentence=work.sentence,
                step=refused.step,
                reason="; ".join(refused.problems),
            )
    result = {"step": refused.step, "problems": list(refused.problems), "notes": list(work.notes)}
    with work.job.write() as tx:
        change_run(tx, work.run.id, RunStatus.FAILED, reason=str(refused), result=result)


def _remember_planned(work: PlanningContext, spec: WorkflowSpec, repaired: tuple[str, ...]) -> None:
    """Said twice it is remembered once. A workflow that a person wrote is no plan for a sentence."""
    if work.spec.get("fill") is not None:
        return
    with _remembering(work) as memory:
        if memory is None:
            return
        saved_as = content_hash(write_spec(spec))
        remember_plan(memory, work.sentence, spec.workflow_id, saved_as, tags=spec.tags)
        if repaired:
            steps = ", ".join(step.step_id for step in spec.steps)
            remember_fix(
                memory,
                run_id=work.run.id,
                sentence=work.sentence,
                step=STEP,
                problem="; ".join(repaired),
                fix=f"a plan with the steps {steps}",
                workflow=spec.workflow_id,
            )


@contextlib.contextmanager
def _remembering(work: PlanningContext) -> Iterator[Memory | None]:
    """The memory, unless it is out of reach or the run rests on a recording, which teaches nothing."""
    with work.job.ledger.read() as tx:
        simulated = get_run(tx, work.run.id).used_recording
    try:
        yield None if simulated else work.memory
    except MemoryFault as fault:
        # What was planned counts all the same; the next plan costs a session more.
        work.notes.append(f"nothing was remembered: {fault}")


def _planned(tx: Transaction, work: PlanningContext, saved: SavedWorkflow, **rest: Any) -> Planned:
    return Planned(
        run_id=work.run.id,
        workflow=saved.name,
        version=saved.version,
        hash=saved.hash,
        spec=saved.spec,
        usage=total(tx, "run", work.run.id),
        notes=tuple(work.notes),
        **rest,
    )


def _free_name(tx: Transaction, work: PlanningContext, spec: WorkflowSpec) -> str:
    """The name that was asked for, or one of the plan's own that takes no other workflow's place."""
    if work.spec["name"] is not None:
        return str(work.spec["name"])
    own = spec.workflow_id[:_LONGEST_OWN_NAME]
    if name_problem("workflow_id", own, WORKFLOW_ID) is not None:
        own = slug(work.sentence)
    return own if find_workflow(tx, own) is None else f"{own}_{work.run.id}"


def _require_free(tx: Transaction, work: PlanningContext, name: str) -> None:
    if work.spec["name"] is None and find_workflow(tx, name) is not None:
        raise Conflict(f"another run has saved a workflow {name} meanwhile", hint="it is tried again")


def _keep(tx: Transaction, work: PlanningContext, made: Made) -> tuple[str, ...]:
    """Put the tools into the toolbox as well, if that was asked for."""
    if not work.spec["keep_tools"]:
        return ()
    for tool in made.tools.values():
        if find_tool(tx, tool.id) is not None:
            raise Conflict(
                f"there is a tool {tool.id} by now, so the one that was written for {work.run.name} is not kept",
                hint="ask for the plan again",
            )
        record_tool(tx, tool, Source(f"generated:run {work.run.id}", hash=tool.hash), origin="generated")
    return tuple(made.tools)
