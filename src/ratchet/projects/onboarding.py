"""Onboarding: from an address or a path to a project that is known well enough to work on.

Read from top to bottom it is what happens. Every stage ends in one transaction; a process that takes over after another
one died goes on with the first stage that has not ended.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ratchet.kernel import RunStatus, StepStatus, Waiting
from ratchet.ledger import Transaction, change_run, change_step
from ratchet.ledger.projects import get_project
from ratchet.ledger.runs import find_or_create_step, get_run
from ratchet.projects.clarifying import SETUP_BLOCKED, ask, waits_for_answers
from ratchet.projects.onboarding_view import Onboarding, onboarding_view
from ratchet.projects.preparing import configure, discover, resolve, write_starters
from ratchet.projects.questions import onboarding_questions
from ratchet.projects.secrets import secret_names
from ratchet.projects.stages import Done, Note, do_stage, step_name, tell
from ratchet.runtime import JobContext

__all__ = ["Onboarding", "onboarding_view", "set_up"]


async def set_up(job: JobContext) -> object:
    """Carry an onboarding from wherever it stands. Raises `Waiting` when it is blocked until somebody acts."""
    project_id = await asyncio.to_thread(_enter, job)
    if project_id is None:
        return {"run": job.run_id, "status": "stands"}
    resolved = await do_stage(job, project_id, "resolve", lambda: resolve(job, project_id))
    tree = Path(resolved["path"])
    await do_stage(job, project_id, "discovery", lambda: discover(job, project_id, tree))
    await do_stage(job, project_id, "assets", lambda: write_starters(job, project_id, tree))
    await do_stage(job, project_id, "git", lambda: configure(job, project_id, tree))
    await asyncio.to_thread(_clarify, job, project_id)
    # Answers may have settled what the stage of git could only guess.
    settled = await configure(job, project_id, tree)
    await asyncio.to_thread(_complete, job, project_id, settled)
    return {"run": job.run_id, "status": "completed"}


def _enter(job: JobContext) -> int | None:
    """The project that is set up; nothing when its run stands still or has ended."""
    with job.write() as tx:
        run = get_run(tx, job.run_id)
        if run.status.stands:
            return None
        assert run.project_id is not None
        if run.status is RunStatus.PENDING:
            change_run(tx, run.id, RunStatus.RUNNING, expected=(RunStatus.PENDING,))
            tell(tx, job, run.project_id, Note("setup_started", "onboarding has begun"))
        return run.project_id


def _clarify(job: JobContext, project_id: int) -> None:
    """Ask what only people know. Raises `Waiting` when that must be answered first."""
    with job.write() as tx:
        step, _ = find_or_create_step(tx, job.run_id, step_name("clarifications"), {})
        if step.status is StepStatus.PENDING:
            _ask(tx, job, project_id)
        if step.status is not StepStatus.RUNNING:
            change_step(tx, step.id, StepStatus.RUNNING, expected=(step.status,))
        blockers = waits_for_answers(tx, project_id, "onboarding", job.run_id)
        if blockers:
            keys = [each.key for each in blockers]
            reason = f"waits for answers to: {', '.join(keys)}"
            change_step(tx, step.id, StepStatus.BLOCKED, expected=(StepStatus.RUNNING,), reason=reason)
            change_run(tx, job.run_id, RunStatus.BLOCKED, reason=reason)
            tell(tx, job, project_id, Note(SETUP_BLOCKED, reason, {"stage": "clarifications", "keys": keys}))
    if blockers:
        raise Waiting(reason)


def _ask(tx: Transaction, job: JobContext, project_id: int) -> None:
    settings = job.runtime.settings
    blocking = settings.projects.require_clarifications
    questions = onboarding_questions(get_project(tx, project_id), settings, secret_names(tx, project_id))
    for each in questions:
        ask(
            tx,
            project_id,
            each.key,
            each.question,
            options=each.options,
            recommended=each.recommended,
            blocking=blocking,
        )
    asked = [{"key": each.key, "recommended": each.recommended} for each in questions]
    data = {"blocking": blocking, "questions": asked}
    tell(tx, job, project_id, Note("setup_clarifications", f"{len(questions)} questions", data))


def _complete(job: JobContext, project_id: int, settled: Done) -> None:
    with job.write() as tx:
        if settled.record is not None:
            settled.record(tx)
        step, _ = find_or_create_step(tx, job.run_id, step_name("clarifications"), {})
        if step.status is StepStatus.RUNNING:
            change_step(tx, step.id, StepStatus.COMPLETED, result={"state": "completed"})
        change_run(tx, job.run_id, RunStatus.COMPLETED, expected=(RunStatus.RUNNING,), reason="set up")
        tell(tx, job, project_id, Note("setup_completed", "the project is set up"))
