"""What keeps a workflow from running is found before there is a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.flowkit.spec import StepType, WorkflowStep
from ratchet.kernel import RatchetError
from ratchet.runtime import Runtime
from ratchet.workflows.files import BadWorkflow
from ratchet.workflows.runs import prepare
from tests.workflows.running.tools import DOUBLE, function, python, workflow


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([function("a", "no_such_tool")], "no_such_tool"),
        ([python("a", "gone", tool_path="../outside.py")], "outside"),
        ([python("a", "gone", tool_path="missing.py")], "missing.py"),
        ([WorkflowStep("a", StepType.PYTHON_TOOL)], "needs a tool"),
        ([WorkflowStep("a", StepType.PYTHON_TOOL, "say it", generate_tool=True)], "not been written"),
        ([WorkflowStep("a", StepType.SUB_WORKFLOW, workflow_path="../x.json")], "outside"),
    ],
)
def test_what_cannot_run_is_refused_before_there_is_a_run(
    runtime: Runtime, tmp_path: Path, steps: list[WorkflowStep], said: str
) -> None:
    with pytest.raises(RatchetError, match=said):
        prepare(runtime, workflow("bad", *steps), {}, folder=tmp_path)


def test_all_that_is_wrong_with_tools_is_told_at_once(runtime: Runtime, tmp_path: Path) -> None:
    spec = workflow("bad", function("a", "no_such_tool"), python("b", "nor_this"), tools={"double": DOUBLE})
    with pytest.raises(RatchetError) as raised:
        prepare(runtime, spec, {}, folder=tmp_path)
    assert "step a: " in str(raised.value)
    assert "step b: " in str(raised.value)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_tool_that_is_a_workflow_with_itself_in_it_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "snake.yaml").write_text(
        "{type: workflow, workflow: {spec: {workflow_id: snake, "
        "steps: [{step_id: tail, type: existing_tool, tool: snake}]}}}"
    )
    with pytest.raises(BadWorkflow, match="deep inside one another"):
        prepare(runtime, workflow("around", function("a", "snake")), {}, folder=tmp_path)
