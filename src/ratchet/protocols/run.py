"""The run of a protocol, from whatever state it is in: plan it, do each step that is ready, publish, finish.

The ledger says what is to be done, so a worker that is started again after a crash resumes by itself. It ends whenever
nothing can be done at the moment: everything passed, a person has to act, or CI has to speak. Whatever changes that
queues another job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratchet.kernel import (
    Conflict,
    LedgerError,
    Misuse,
    RatchetError,
    RunStatus,
    StateChanged,
    StepStatus,
    Superseded,
    Waiting,
    with_hint,
)
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import (
    Protocol,
    ProtocolStep,
    change_protocol_step,
    get_protocol,
    get_protocol_step,
    list_protocol_steps,
)
from ratchet.ledger.runs import lock_run
from ratchet.ledger.usage import stages_of_step
from ratchet.placement import placement_for
from ratchet.projects.address import CloneMissing
from ratchet.projects.clarifications import waits_for_answers
from ratchet.projects.clone import opened_clone, stoppable
from ratchet.protocols.jobs import again, block_run, complete_if_done, move_step, wake
from ratchet.protocols.loops import decide_failed
from ratchet.protocols.planning import PlanBlocked, PlanFailed, plan_protocol
from ratchet.protocols.qa.baseline import check_baseline
from ratchet.protocols.spec import dependencies
from ratchet.protocols.step import work_on
from ratchet.protocols.stream import (
    ProtocolBlocked,
    Stream,
    bring_commits,
    finish_pull_request,
    head_of,
    pack_branch,
    publish,
    record_branch,
    show_worktree,
)
from ratchet.runtime import JobContext
from ratchet.runtime.attempts import ENDED

# How often a busy worker looks for steps that were asked for meanwhile.
_LOOK_SECONDS = 0.5
_AT_WORK = (StepStatus.RUNNING, StepStatus.NEEDS_QA)
_LIVE = (RunStatus.PLANNING, RunStatus.PLANNED, RunStatus.RUNNING)


@dataclass(frozen=True, slots=True)
class ProtocolState:
    """The protocol and its steps at one moment."""

    protocol: Protocol
    steps: Sequence[ProtocolStep]

    @property
    def at_work(self) -> list[ProtocolStep]:
        """Steps with work to do; one that waits for CI has none."""
        return [each for each in self.steps if each.status in _AT_WORK and not each.awaits_ci]

    @property
    def ready(self) -> list[ProtocolStep]:
        """Pending steps that may begin: all that they need is there, or a policy asked for them."""
        needs = dependencies(self.steps)
        done = {each.name for each in self.steps if each.status is StepStatus.COMPLETED}
        return [
            each
            for each in self.steps
            if each.status is StepStatus.PENDING
            and (
                (each.runtime_state or {}).get("triggered")
                or (self.protocol.automatic and needs[each.name] <= done)
            )
        ]


async def carry(job: JobContext) -> object:
    """Do what can be done for the job's protocol now."""
    look = await asyncio.to_thread(_look, job)
    wants_pull_request = bool(job.payload.get("pull_request"))
    if look.protocol.status not in _LIVE and not wants_pull_request:
        return _result(look)
    try:
        return await _carry(job, look.protocol, wants_pull_request=wants_pull_request)
    except ProtocolBlocked as blocked:
        return await asyncio.to_thread(_block, job, blocked)
    except (LedgerError, Waiting):
        raise
    except RatchetError as error:
        look = await asyncio.to_thread(_look, job)
        if look.protocol.status not in _LIVE and not wants_pull_request:
            # The run was paused or ended before this job was asked to stop.
            return _result(look)
        if isinstance(error, StateChanged | Superseded) or _may_pass(job, error):
            raise
        # Without another try the run would have failed for good, and could not be resumed once the cause is fixed.
        stopped = ProtocolBlocked(str(error), event="carrying_failed", hint=error.hint)
        return await asyncio.to_thread(_block, job, stopped)


def _may_pass(job: JobContext, error: RatchetError) -> bool:
    """Whether the job is tried again, and may do better then."""
    return not isinstance(error, Misuse) and job.job.attempt < job.job.max_attempts


async def _carry(job: JobContext, protocol: Protocol, *, wants_pull_request: bool) -> object:
    project = await asyncio.to_thread(_project, job, protocol)
    try:
        async with opened_clone(job.runtime, project) as clone:
            stream = Stream(job, protocol, project, clone, placement_for(job.runtime.settings))
            if job.ledger.artifacts.travels and protocol.base_commit is not None:
                await stoppable(clone.transfer, lambda: bring_commits(stream))
            return await _go_on(stream, wants_pull_request=wants_pull_request)
    except CloneMissing as missing:
        raise ProtocolBlocked(str(missing), event="repo_missing", hint=missing.hint) from missing


async def _go_on(stream: Stream, *, wants_pull_request: bool) -> object:
    job = stream.job
    if stream.protocol.status is RunStatus.PLANNING:
        await _check_base(stream)
        await _plan(stream)
        stream = await asyncio.to_thread(_fresh, stream)
        await _show(stream, await asyncio.to_thread(head_of, stream))
    if wants_pull_request:
        await publish(stream, await asyncio.to_thread(head_of, stream), always=True)
    look = await asyncio.to_thread(_look, job)
    if look.protocol.status is RunStatus.PLANNED:
        if not look.protocol.automatic:
            return _result(look)
        await asyncio.to_thread(_enter, job)
    if (await asyncio.to_thread(_look, job)).protocol.status is RunStatus.RUNNING:
        await _advance(stream)
    return _result(await asyncio.to_thread(_look, job))


async def _check_base(stream: Stream) -> None:
    """The checks on the base as it is now. A base that cannot be reached is for planning to explain."""
    clone = stream.clone
    try:
        base = await stoppable(clone.transfer, lambda: clone.fetch(stream.protocol.base_branch))
    except (LedgerError, Superseded, StateChanged):
        raise
    except RatchetError:
        return
    await check_baseline(stream, base)


async def _plan(stream: Stream) -> None:
    try:
        await plan_protocol(stream.job, stream.protocol, stream.project, stream.clone, stream.open_engine)
    except PlanBlocked as waiting:
        raise ProtocolBlocked(
            str(waiting), event="planning_blocked_clarifications", hint=waiting.hint
        ) from waiting
    except PlanFailed as failed:
        raise ProtocolBlocked(str(failed), event="planning_failed", hint=failed.hint) from failed


async def _advance(stream: Stream) -> None:
    """Do ready steps, side by side as far as the settings allow, until none is left."""
    head = await asyncio.to_thread(head_of, stream)
    await check_baseline(stream, stream.protocol.base_commit or head)
    await publish(stream, head)
    most = stream.job.runtime.settings.protocols.concurrency
    working: dict[int, asyncio.Task[None]] = {}
    try:
        while True:
            look = await asyncio.to_thread(_look, stream.job)
            if look.protocol.status is not RunStatus.RUNNING:
                return
            await asyncio.to_thread(keep_approved, stream, look.steps)
            for step in _next(stream, look, working, most):
                working[step.step_id] = asyncio.create_task(work_on(stream, step))
            if not working:
                if await asyncio.to_thread(decide_failed, stream, look.steps):
                    continue
                if await _conclude(stream, look):
                    return
                continue
            done, _ = await asyncio.wait(
                working.values(), timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for number in [number for number, task in working.items() if task in done]:
                working.pop(number).result()
            if done:
                await _show(stream, await asyncio.to_thread(head_of, stream))
    finally:
        for task in working.values():
            task.cancel()
        await asyncio.gather(*working.values(), return_exceptions=True)


def _next(
    stream: Stream, look: ProtocolState, working: dict[int, asyncio.Task[None]], most: int
) -> list[ProtocolStep]:
    """The steps to begin now: what is at work already in the ledger, then what is ready."""
    room = most - len(working)
    chosen = [each for each in look.at_work if each.step_id not in working][: max(0, room)]
    ready = look.ready[: max(0, room - len(chosen))]
    if ready:
        with stream.job.write() as tx:
            for each in ready:
                again(tx, each, "everything that it needs is there", triggered=False)
                stream.event(tx, "step_enqueued", f"{each.name} is ready", step_id=each.step_id)
            fresh = {each.step_id: each for each in list_protocol_steps(tx, stream.protocol.run_id)}
        chosen += [fresh[each.step_id] for each in ready]
    return chosen


async def _conclude(stream: Stream, look: ProtocolState) -> bool:
    """Nothing can be done at the moment: complete the run, leave it to whom it waits for, or say what stops it.

    False when something has changed since the look, so that it has to be looked at again.
    """
    done = (StepStatus.COMPLETED, StepStatus.CANCELLED)
    finished = look.steps and all(each.status in done for each in look.steps)
    if finished and not look.protocol.rests_on_recording:
        await publish(stream, await asyncio.to_thread(head_of, stream))
        await finish_pull_request(stream)
    return await asyncio.to_thread(_end, stream, look)


def _end(stream: Stream, look: ProtocolState) -> bool:
    with stream.job.write() as tx:
        # Every change of a step locks the run first, so nothing changes any more now.
        lock_run(tx, stream.protocol.run_id)
        steps = list_protocol_steps(tx, stream.protocol.run_id)
        if steps != look.steps:
            return False
        if complete_if_done(tx, stream.protocol.run_id):
            return True
        if not steps:
            block_run(tx, stream.protocol.run_id, "there are no steps: plan it, or add some")
            return True
        stopped = [each for each in steps if each.status in (StepStatus.FAILED, StepStatus.BLOCKED)]
        busy = any(each.status in _AT_WORK for each in steps)
        if stopped and not busy:
            first = stopped[0]
            reason = f"step {first.name} is {first.status}: {first.reason or 'no reason was given'}"
            block_run(tx, stream.protocol.run_id, reason)
    return True


def _look(job: JobContext) -> ProtocolState:
    with job.ledger.read() as tx:
        return ProtocolState(get_protocol(tx, job.run_id), list_protocol_steps(tx, job.run_id))


def _project(job: JobContext, protocol: Protocol) -> Project:
    with job.ledger.read() as tx:
        return get_project(tx, protocol.project_id)


def _fresh(stream: Stream) -> Stream:
    with stream.job.ledger.read() as tx:
        protocol = get_protocol(tx, stream.protocol.run_id)
    return replace(stream, protocol=protocol)


async def _show(stream: Stream, commit: str) -> None:
    await asyncio.to_thread(show_worktree, stream, commit)


def _enter(job: JobContext) -> None:
    with job.write() as tx:
        change_run(
            tx, job.run_id, RunStatus.RUNNING, expected=(RunStatus.PLANNED,), reason="the plan is carried out"
        )


def _block(job: JobContext, blocked: ProtocolBlocked) -> dict[str, Any]:
    reason = with_hint(blocked)
    with job.write() as tx:
        protocol = get_protocol(tx, job.run_id)
        if blocked.event == "planning_blocked_clarifications" and not waits_for_answers(
            tx, protocol.project_id, "planning", protocol.run_id
        ):
            # The answer has just come, and there was nothing to resume yet.
            wake(tx, job.runtime, job.run_id)
        else:
            _tell(tx, protocol, blocked.event, reason)
            if blocked.event == "repo_missing":
                _block_reviews(tx, protocol, reason)
            block_run(tx, job.run_id, reason)
    return {"protocol": job.run_id, "status": "blocked", "reason": reason}


def _block_reviews(tx: Transaction, protocol: Protocol, reason: str) -> None:
    """Reviews that were asked for wait with the run; they are done when it is resumed."""
    for step in list_protocol_steps(tx, protocol.run_id):
        if step.status is StepStatus.NEEDS_QA and (step.runtime_state or {}).get("qa_requested"):
            move_step(tx, step, StepStatus.BLOCKED, reason)
            _tell(tx, protocol, "qa_blocked_repo", reason, step_id=step.step_id)


def _tell(
    tx: Transaction, protocol: Protocol, type: str, message: str, *, step_id: int | None = None
) -> None:
    tx.event(type, run_id=protocol.run_id, project_id=protocol.project_id, step_id=step_id, message=message)


def _result(look: ProtocolState) -> dict[str, Any]:
    return {"protocol": look.protocol.run_id, "status": str(look.protocol.status)}


def keep_approved(stream: Stream, steps: Sequence[ProtocolStep]) -> None:
    """Move the branch to the newest commit of each step that was approved and is not on it yet."""
    for step in steps:
        if (
            step.status is StepStatus.COMPLETED
            and (step.runtime_state or {}).get("approved_by")
            and not step.commit
        ):
            _keep(stream, step)


def _keep(stream: Stream, step: ProtocolStep) -> None:
    repository = stream.clone.repository
    with stream.job.ledger.read() as tx:
        made = [each["commit"] for each in stages_of_step(tx, step.step_id, ENDED) if each.get("commit")]
    head = repository.resolve(stream.protocol.ref)
    commit = made[-1] if made else head
    if not repository.is_ancestor(commit, stream.protocol.ref):
        if not repository.is_ancestor(head, commit):
            raise ProtocolBlocked(
                f"the approved change of {step.name} does not fit onto the branch any more",
                event="approval_not_kept",
                hint=f"run the step again: ratchet step run {step.step_id}",
            )
        try:
            repository.advance(stream.protocol.ref, commit, expected=head)
        except (StateChanged, Conflict) as error:
            raise ProtocolBlocked(str(error), event="approval_not_kept", hint=error.hint) from error
    pack = pack_branch(stream, commit)
    with stream.job.write() as tx:
        if get_protocol_step(tx, step.step_id).commit is None:
            change_protocol_step(tx, step.step_id, commit=commit)
            record_branch(tx, stream, commit, pack)
            stream.event(tx, "approval_kept", f"{commit[:12]} is on the branch", step_id=step.step_id)
