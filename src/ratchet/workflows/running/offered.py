"""A call that another worker carries out: how it is described, how it is done, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ratchet.flowkit.execution import StepCall
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import RunStatus
from ratchet.ledger import ArtifactStore, Spender, Transaction
from ratchet.ledger.runs import get_run
from ratchet.runtime import JobContext
from ratchet.tools.call import Occasion, ToolFailed, ToolResult, ToolUse
from ratchet.workflows.running.plan import load_plan
from ratchet.workflows.running.values import keep_value, read_value

DONE = "workflow.step_done"


def described(tx: Transaction, artifacts: ArtifactStore, call: StepCall, *, run_id: int) -> dict[str, Any]:
    """The call as the payload of a job."""
    return {
        "name": call.name,
        "workflow": write_spec(WorkflowSpec(call.workflow.workflow_id, steps=(call.step,))),
        "values": keep_value(tx, artifacts, dict(call.values), run_id=run_id, name=call.name),
        "tool": call.tool,
        "prompt": call.prompt,
        "number": call.number,
    }


async def do_step(job: JobContext) -> object:
    """Carry out a call of a run that another worker carries."""
    artifacts = job.ledger.artifacts
    with job.ledger.read() as tx:
        run = get_run(tx, job.run_id)
        if run.status is not RunStatus.RUNNING:
            return {"failed": f"the run is {run.status}", "final": True}
        plan = load_plan(tx, run)
    given = job.payload
    workflow = read_spec(given["workflow"])
    call = StepCall(
        given["name"],
        workflow.steps[0],
        workflow,
        read_value(artifacts, given["values"]),
        given["tool"],
        given["prompt"],
        given["number"],
    )
    occasion = Occasion(
        job.runtime,
        spender=Spender(run_id=run.id, project_id=run.project_id),
        actor=job.process_id,
        seconds=call.step.timeout,
        folder=plan.folder,
    )
    try:
        called = await plan.work(call).carry_out(call, occasion)
    except ToolFailed as failed:
        with job.write() as tx:
            return _tell(tx, job, _failed(failed))
    with job.write() as tx:
        kept = keep_value(tx, artifacts, called.value, run_id=run.id, name=call.name)
        return _tell(tx, job, {**asdict(called), "value": kept})


def understood(artifacts: ArtifactStore, result: Mapping[str, Any]) -> ToolResult:
    """What `do_step` has told. Raises `ToolFailed` if the call had failed."""
    use = ToolUse(**result.get("use", {}))
    if "failed" in result:
        raise ToolFailed(
            result["failed"],
            hint=result.get("hint"),
            use=use,
            said=result.get("said", ""),
            final=result["final"],
        )
    return ToolResult(read_value(artifacts, result["value"]), use, result["said"], result["simulated"])


def _failed(failed: ToolFailed) -> dict[str, Any]:
    return {
        "failed": str(failed),
        "hint": failed.hint,
        "use": asdict(failed.use),
        "said": failed.said,
        "final": failed.final,
    }


def _tell(tx: Transaction, job: JobContext, result: dict[str, Any]) -> dict[str, Any]:
    """The result is in the event as well: that is heard before the end of the job is on record."""
    tx.event(DONE, run_id=job.run_id, job_id=job.job.id, data=result)
    return result
