"""Takes the answers out of a run that has ended.

The run is gone through once more with what its steps came to, so that what each of them was given is known exactly.
Nothing is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.execution import Inside, Result, StepCall, StepError
from ratchet.flowkit.executor import execute
from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep
from ratchet.kernel import Conflict, RunId, RunStatus, StepStatus
from ratchet.ledger import Ledger, Run
from ratchet.ledger.runs import get_run, list_steps
from ratchet.workflows.export_runner.caller import RECORDED, ExportRecording, keys_of, kind_of
from ratchet.workflows.runs.plan import RunPlan, load_plan
from ratchet.workflows.runs.results import read_outputs, read_value


def read_run(ledger: Ledger, run_id: RunId) -> tuple[Run, RunPlan, dict[str, Any]]:
    """A run, what it was to do, and the value of each step. Raises `NotFound`, and `Conflict` if it is not complete."""
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        if run.kind != "workflow" or run.status is not RunStatus.COMPLETED:
            raise Conflict(
                f"run {run_id} is a {run.kind} that is {run.status}; only a completed run of a workflow is recorded",
                hint="`ratchet workflow list` shows the runs",
            )
        steps = [step for step in list_steps(tx, run_id) if step.status is StepStatus.COMPLETED]
        plan = load_plan(tx, run)
    return run, plan, {step.name: read_value(ledger.artifacts, step.result or {}) for step in steps}


async def record(
    ledger: Ledger, run: Run, portable: WorkflowSpec, inputs: Mapping[str, Any], values: Mapping[str, Any]
) -> ExportRecording:
    """What `portable`, which is the workflow of `run`, was given and answered there."""
    answers: dict[str, Any] = {}
    ended = await execute(_without_pauses(portable), inputs, _Remembering(values, answers))
    outputs = read_outputs(ledger.artifacts, run)
    if ended.status != "completed" or dict(ended.outputs) != outputs:
        raise Conflict(
            f"run {run.id} cannot be followed: {ended.error or 'its outputs are not what its steps came to'}",
            hint="run the workflow again and take that run",
        )
    return ExportRecording(
        run.id, run.simulated or run.used_recording, dict(inputs), outputs, dict(sorted(answers.items()))
    )


def _without_pauses(spec: WorkflowSpec) -> WorkflowSpec:
    """The workflow without pauses between rounds: what they waited for is known."""

    def step(each: WorkflowStep) -> WorkflowStep:
        inner = None if each.workflow_spec is None else _without_pauses(each.workflow_spec)
        repeat = None if each.repeat is None else replace(each.repeat, pause_seconds=0.0)
        return replace(each, workflow_spec=inner, repeat=repeat)

    return replace(spec, steps=tuple(map(step, spec.steps)))


class _Remembering:
    """Answers every call with its recorded result, and keeps what asked an outside service."""

    def __init__(self, values: Mapping[str, Any], answers: dict[str, Any]) -> None:
        self._values = values
        self._answers = answers

    async def call(self, call: StepCall) -> Result:
        if call.name not in self._values:
            raise StepFailed(f"nothing is known of {call.name}", final=True)
        value = self._values[call.name]
        tool = call.workflow.tool_definitions.get(call.tool or "")
        if kind_of(call, tool) in RECORDED:
            own, any_item = keys_of(call.name, call.values)
            self._answers[own] = value
            self._answers.setdefault(any_item, value)
        return Result(value)

    async def around(self, call: StepCall, inside: Inside) -> Result | StepError | None:
        end = await inside(call.values)
        if isinstance(end, StepError) and call.name in self._values:
            # Another tool stood in for it.
            return Result(self._values[call.name])
        return end

    async def sub_workflow(self, call: StepCall) -> WorkflowSpec:
        raise StepFailed(f"{call.step.workflow_path} was not part of the run", final=True)

    def fallback(self, call: StepCall) -> str | None:
        return None
