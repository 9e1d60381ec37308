"""One run of the overseer: a sentence becomes a saved workflow, or a reason why not.

Every session ends with a checkpoint in the ledger, so a process that is started again goes on behind it, and nothing is
saved before the very end, which is one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib

from ratchet.asking import NoAnswer
from ratchet.engines.registry import open_engine
from ratchet.ledger.runs import find_step, get_run
from ratchet.memory import Memory, MemoryFault, open_memory
from ratchet.runtime import JobContext, enter_run
from ratchet.tools.registry import open_toolbox
from ratchet.workflows.overseer.ending import block, end_failed, end_planned, end_reused
from ratchet.workflows.overseer.proposing import STEP, propose_plan
from ratchet.workflows.overseer.reusing import look_for_plan
from ratchet.workflows.overseer.tool_making import make_tools
from ratchet.workflows.overseer.work import Opener, Tell, Work, announce, surroundings


async def plan(job: JobContext, opener: Opener = open_engine, tell: Tell = announce) -> object:
    """Plan a workflow for the sentence of the run, unless a remembered plan will do."""
    with job.ledger.read() as tx:
        run = get_run(tx, job.run_id)
    if run.status.final:
        return str(run.status)
    with contextlib.ExitStack() as stack:
        work = await asyncio.to_thread(_open, job, opener, tell, stack)
        return await _carry(work)


async def _carry(work: Work) -> str:
    """In a word, what came of it."""
    found = await asyncio.to_thread(look_for_plan, work)
    if found.reuse is not None and not _is_begun(work):
        end_reused(work, found)
        return "reused"
    try:
        proposed = await propose_plan(work, found.template)
        made = await make_tools(work, proposed.spec)
    except NoAnswer as refused:
        if refused.is_permanent:
            block(work, refused)
            return "blocked"
        await asyncio.to_thread(end_failed, work, refused)
        return "failed"
    await asyncio.to_thread(end_planned, work, proposed, made)
    return "planned"


def _is_begun(work: Work) -> bool:
    """Whether the overseer has been asked already, in an earlier life of this run."""
    with work.job.ledger.read() as tx:
        return find_step(tx, work.run.id, STEP) is not None


def _open(job: JobContext, opener: Opener, tell: Tell, stack: contextlib.ExitStack) -> Work:
    """The run, running, with everything that it needs; the stack closes it."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    runtime = job.runtime
    engine = opener(run.spec["engine"], surroundings(job))
    toolbox = open_toolbox(job.ledger, runtime.settings, runtime.home)
    stack.callback(toolbox.close)
    notes: list[str] = []
    return Work(job, run, engine, toolbox, _memory(job, stack, notes), tell, notes)


def _memory(job: JobContext, stack: contextlib.ExitStack, notes: list[str]) -> Memory | None:
    try:
        memory = open_memory(job.runtime.settings.memory, job.runtime.home)
    except MemoryFault as fault:
        # A memory that is out of reach costs a session, not the plan.
        notes.append(f"the memory cannot be used: {fault}")
        return None
    return stack.enter_context(contextlib.closing(memory))
