"""The ledger's side of an attempt that has stages: open it, continue with it, end it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ratchet.kernel import (
    AttemptId,
    Conflict,
    Limits,
    Outcome,
    RunStatus,
    StepStatus,
    Superseded,
    Verdict,
    Waiting,
)
from ratchet.ledger import ArtifactStore, Run, Spender, Step, Transaction, change_step
from ratchet.ledger.runs import (
    close_attempt,
    find_or_create_step,
    find_step,
    get_run,
    open_attempt,
    unended_attempt,
)
from ratchet.ledger.statuses import UNCHANGED
from ratchet.ledger.usage import finish_stage, finished_stages, hold, stages_of_step
from ratchet.observe import logs, tracing
from ratchet.runtime.runtime import configured_budgets

if TYPE_CHECKING:
    from ratchet.runtime.runtime import JobContext


ENDED = "ended"


@dataclass(slots=True)
class OpenAttempt:
    """An attempt in the hands of this process, with what its finished stages left."""

    job: JobContext
    run: Run
    step: Step
    id: AttemptId
    step_status: StepStatus
    limits: Limits = field(default_factory=Limits)
    finished: dict[str, Any] = field(default_factory=dict)

    @property
    def spender(self) -> Spender:
        return Spender(self.id, self.run.id, self.run.project_id)

    @property
    def artifacts(self) -> ArtifactStore:
        return self.job.ledger.artifacts

    def finish(self, tx: Transaction, stage: str, data: Any) -> None:
        """Checkpoint a stage."""
        finish_stage(tx, self.id, stage, data)
        self.finished[stage] = data

    def move_step(
        self, tx: Transaction, to: StepStatus, reason: str | None = None, *, result: Any = UNCHANGED
    ) -> None:
        """Change the step's status, from the one this attempt gave it."""
        expected = (self.step_status,)
        change_step(tx, self.step.id, to, expected=expected, reason=reason, result=result, attempt_id=self.id)
        self.step_status = to

    def end(
        self,
        tx: Transaction,
        outcome: Outcome,
        reason: str,
        result: Mapping[str, Any],
        *,
        step: StepStatus,
        verdict: Verdict | None = None,
    ) -> None:
        """Close the attempt and say what became of its step, in one transaction with the result to remember."""
        finish_stage(tx, self.id, ENDED, dict(result))
        close_attempt(tx, self.id, outcome, reason, verdict)
        if step is not self.step_status:
            self.move_step(tx, step, reason, result=dict(result))


def take_attempt(
    job: JobContext, step_name: str, *, nth: int, spec: Mapping[str, Any] | None = None
) -> OpenAttempt | Mapping[str, Any]:
    """The `nth` attempt at a step, to be worked on; or its result, if it has ended before.

    An attempt that a dead process left is gone on with if it has finished a stage, and replaced by a new one if not.
    """
    with job.write() as tx:
        run = _unended_run(tx, job.run_id)
        step, new = find_or_create_step(tx, run.id, step_name, spec or {})
        if new and nth == 1:
            return begin_attempt(tx, job, run, step)
        ended = stages_of_step(tx, step.id, ENDED)
        if len(ended) >= nth:
            result: Mapping[str, Any] = ended[nth - 1]
            return result
        if len(ended) < nth - 1:
            raise Conflict(
                f"step {step_name} has had {len(ended)} attempts, so attempt {nth} cannot be the next"
            )
        return _resumed(tx, job, run, step) or begin_attempt(tx, job, run, step)


def _unended_run(tx: Transaction, run_id: int) -> Run:
    """The run. Raises `Waiting` when it was cancelled or has failed: its worker may hear of that a moment later, and
    what it began meanwhile would stay open for ever, with the budget that is held for it."""
    run = get_run(tx, run_id)
    if run.status in (RunStatus.CANCELLED, RunStatus.FAILED):
        raise Waiting(f"run {run_id} is {run.status}")
    return run


def ended_attempt(job: JobContext, step_name: str, nth: int) -> Mapping[str, Any] | None:
    """The result of the `nth` attempt at a step, if that has ended."""
    with job.ledger.read() as tx:
        step = find_step(tx, job.run_id, step_name)
        ended: list[Mapping[str, Any]] = [] if step is None else stages_of_step(tx, step.id, ENDED)
    return ended[nth - 1] if len(ended) >= nth else None


def _resumed(tx: Transaction, job: JobContext, run: Run, step: Step) -> OpenAttempt | None:
    attempt_id = unended_attempt(tx, step.id)
    finished = {} if attempt_id is None else finished_stages(tx, attempt_id)
    if attempt_id is None or not finished:
        return None
    opened = OpenAttempt(job, run, step, attempt_id, step.status, finished=finished)
    if step.status is StepStatus.BLOCKED:
        opened.move_step(tx, StepStatus.NEEDS_QA, "resumed")
    tx.event(
        "attempt.resumed",
        run_id=run.id,
        step_id=step.id,
        attempt_id=attempt_id,
        data={"finished": list(finished)},
    )
    return opened


def begin_attempt(
    tx: Transaction, job: JobContext, run: Run, step: Step, *, side_by_side: int | None = None
) -> OpenAttempt:
    """A new attempt at a step, which runs then, with its share of the budget held. Raises `BudgetExceeded`.

    `side_by_side` is how many attempts may share what is left of the run's budget.
    """
    _unended_run(tx, run.id)
    if step.status is not StepStatus.RUNNING:
        change_step(tx, step.id, StepStatus.RUNNING, expected=(step.status,))
        step = replace(step, status=StepStatus.RUNNING)
    attempt_id = open_attempt(tx, step, process_id=job.process_id)
    opened = OpenAttempt(job, run, step, attempt_id, StepStatus.RUNNING)
    budgets = configured_budgets(job.runtime.settings)
    opened.limits = hold(tx, opened.spender, budgets, side_by_side=side_by_side)
    return opened


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
    each; when the process dies in between, the next one opens a new attempt. An exception fails the step and is raised.
    """
    with job.write() as tx:
        _unended_run(tx, job.run_id)
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
