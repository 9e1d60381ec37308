"""Durable steps: work that is done once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ratchet.kernel import AttemptId, Outcome, StepStatus, Superseded, Waiting
from ratchet.ledger import change_step
from ratchet.ledger.runs import close_attempt, find_or_create_step, open_attempt
from ratchet.observe import logs, tracing

if TYPE_CHECKING:
    from ratchet.runtime.context import JobContext

_RUNNING = (StepStatus.RUNNING,)


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
        step, _ = find_or_create_step(tx, job.run_id, name, spec or {})
        if step.status is StepStatus.COMPLETED:
            return step.result
        if step.status is not StepStatus.RUNNING:
            change_step(tx, step.id, StepStatus.RUNNING, expected=(step.status,))
        attempt_id = open_attempt(tx, step, process_id=job.process_id)
    try:
        with logs.bind(step_id=step.id, attempt_id=attempt_id), tracing.span("step", step=name):
            result = await work(attempt_id)
        with job.write() as tx:
            close_attempt(tx, attempt_id, Outcome.PASSED, "returned")
            change_step(
                tx, step.id, StepStatus.COMPLETED, expected=_RUNNING, result=result, attempt_id=attempt_id
            )
    except (Superseded, Waiting):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        with job.write() as tx:
            close_attempt(tx, attempt_id, Outcome.ERROR, reason)
            change_step(tx, step.id, StepStatus.FAILED, reason=reason, attempt_id=attempt_id)
        raise
    return result
