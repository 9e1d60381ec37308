"""Durable steps: work that is done once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ratchet.kernel import AttemptId, Outcome, StepStatus, Superseded
from ratchet.ledger import Step, Transaction, change_step
from ratchet.ledger.runs import close_attempt, create_steps, find_step, get_step, open_attempt
from ratchet.observe import logs, tracing
from ratchet.runtime.context import JobContext


async def run_step(
    job: JobContext,
    name: str,
    work: Callable[[AttemptId], Awaitable[Any]],
    *,
    spec: Mapping[str, Any] | None = None,
) -> Any:
    """Do `work` as the step `name` of the job's run and return its result.

    A step that is completed is not done again: its recorded result is returned. Start and end are one transaction
    each; when the process dies in between, the next one opens a new attempt. An exception fails the step and goes on.
    """
    with job.write() as tx:
        step = _find_or_create(tx, job.run_id, name, spec or {})
        if step.status is StepStatus.COMPLETED:
            return step.result
        if step.status is not StepStatus.RUNNING:
            change_step(tx, step.id, StepStatus.RUNNING)
        attempt_id = open_attempt(tx, step, process_id=job.process_id)
    try:
        with logs.bind(step_id=step.id, attempt_id=attempt_id), tracing.span("step", step=name):
            result = await work(attempt_id)
        with job.write() as tx:
            close_attempt(tx, attempt_id, Outcome.PASSED, "returned")
            change_step(tx, step.id, StepStatus.COMPLETED, result=result, attempt_id=attempt_id)
    except Superseded:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        with job.write() as tx:
            close_attempt(tx, attempt_id, Outcome.ERROR, reason)
            change_step(tx, step.id, StepStatus.FAILED, reason=reason, attempt_id=attempt_id)
        raise
    return result


def _find_or_create(tx: Transaction, run_id: int, name: str, spec: Mapping[str, Any]) -> Step:
    step = find_step(tx, run_id, name)
    if step is None:
        [step_id] = create_steps(tx, run_id, [(name, spec)])
        return get_step(tx, step_id)
    return step
