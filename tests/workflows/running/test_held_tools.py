"""Tools that are workflows, as steps: their steps are those of the run, and what the tool declares counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ratchet.flowkit.spec import StepType, WorkflowInput, WorkflowOutput, WorkflowStep
from ratchet.flowkit.writer import write_spec
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.questions import decide_approval, list_approvals
from ratchet.ledger.tools import CallRow, calls_of_tool, list_tools
from ratchet.runtime import Runtime, resume_run
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import marks
from tests.waiting import eventually
from tests.workflows.running.settled import run, settle, start
from tests.workflows.running.tools import function, workflow

NUMBER = {"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]}
TEXT = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    return tmp_path


def put(folder: Path, name: str, *steps: WorkflowStep, **declared: Any) -> None:
    """Write down a tool that is a workflow of these steps. What its step `last` comes to, it comes to."""
    inside = workflow(
        f"{name}-inside",
        *steps,
        inputs=(WorkflowInput("value", "number", required=False, default=0),),
        outputs=(WorkflowOutput("value", source_reference="steps.last.output"),),
    )
    tool = {"type": "workflow", "workflow": {"spec": write_spec(inside)}, **declared}
    (folder / "tools" / f"{name}.yaml").write_text(json.dumps(tool))


def last(**more: Any) -> WorkflowStep:
    return function("last", input_mapping={"value": "inputs.value"}, **more)


def calls(tx: Transaction, name: str) -> list[CallRow]:
    [tool] = [tool for tool in list_tools(tx, limit=1000) if tool.name == name]
    return calls_of_tool(tx, tool.id)


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
def test_a_call_is_on_record_with_what_its_steps_took(runtime: Runtime, ledger: Ledger, folder: Path) -> None:
    put(folder, "inner", last())
    put(
        folder,
        "outer",
        function("last", "inner", for_each=[1, 2], input_mapping={"value": "item"}),
        cache=True,
    )
    done = run(runtime, workflow("all", function("named", "outer")), folder=folder)
    assert done["outputs"] == {"named": {"value": [{"value": 1}, {"value": 2}]}}, done
    assert done["steps"]["named/last[1]/last"]["status"] == "completed"
    with ledger.read() as tx:
        [outer], inner = calls(tx, "outer"), calls(tx, "inner")
    assert (outer.ok, outer.step, outer.run_id) == (True, "named", done["run_id"])
    assert outer.output == done["outputs"]["named"]
    assert {call.step for call in inner} == {"named/last[0]", "named/last[1]"}
    assert outer.wall_ms >= max(call.wall_ms for call in inner) > 0


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
def test_inputs_that_do_not_fit_are_refused_before_anything_of_it_runs(
    runtime: Runtime, ledger: Ledger, folder: Path
) -> None:
    put(folder, "inner", last(), input_schema=NUMBER | {"additionalProperties": False, "required": ["more"]})
    done = run(
        runtime, workflow("all", function("named", "inner", input_mapping={"value": 1})), folder=folder
    )
    assert done["status"] == "failed"
    assert "the inputs of tool inner do not fit: " in done["steps"]["named"]["error"]
    assert done["steps"].keys() == {"named"}
    with ledger.read() as tx:
        assert [call.ok for call in calls(tx, "inner")] == [False]


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("declared", "wrong"),
    [
        ({"output_schema": TEXT}, "the answer of tool inner cannot be used: "),
        ({"constraints": {"max_output_bytes": 4}}, "bytes, at most 4 are allowed"),
    ],
)
def test_an_answer_that_does_not_fit_is_not_used(
    declared: dict[str, Any], wrong: str, runtime: Runtime, ledger: Ledger, folder: Path
) -> None:
    put(folder, "inner", last(), **declared)
    spec = workflow(
        "all",
        function("named", "inner", input_mapping={"value": 1}),
        function("after", input_mapping={"value": "steps.named.output"}),
    )
    done = run(runtime, spec, folder=folder)
    assert wrong in done["steps"]["named"]["error"]
    assert {name: step["status"] for name, step in done["steps"].items()} == {
        "named": "failed",
        "named/last": "completed",
        "after": "skipped",
    }
    with ledger.read() as tx:
        assert [call.ok for call in calls(tx, "inner")] == [False]


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
def test_another_tool_stands_in_for_one_that_fails(runtime: Runtime, ledger: Ledger, folder: Path) -> None:
    put(folder, "inner", last(), output_schema=TEXT)
    spec = workflow("all", function("named", "inner", fallback_tool="identity", input_mapping={"value": 7}))
    done = run(runtime, spec, folder=folder)
    assert (done["status"], done["outputs"]) == ("completed", {"named": 7}), done


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
def test_a_tool_is_called_no_more_often_than_it_may_be(runtime: Runtime, folder: Path) -> None:
    put(folder, "inner", last(), constraints={"max_calls_per_hour": 2})
    each = function("each", "inner", for_each=[1, 2, 3], input_mapping={"value": "item"})
    done = run(runtime, workflow("all", each), folder=folder)
    found = Counter(step["status"] for name, step in done["steps"].items() if name.endswith("]"))
    assert found == {"completed": 2, "failed": 1}
    assert "may be called 2 times an hour" in done["error"]


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
def test_what_runs_is_stopped_when_the_tool_takes_too_long(runtime: Runtime, folder: Path) -> None:
    put(
        folder,
        "inner",
        function(
            "slow",
            "mark_slowly",
            input_mapping={"file": str(folder / "marks"), "name": "slow", "seconds": 120},
        ),
        last(depends_on=("slow",)),
        timeout=0.3,
    )
    done = run(runtime, workflow("all", function("named", "inner")), folder=folder)
    why = "tool inner did not end within 0.3 s"
    assert done["steps"]["named"]["error"] == why
    assert done["steps"]["named/slow"]["status"] == "failed"
    assert done["steps"]["named/slow"]["error"] == f"stopped with named: {why}"


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
def test_one_that_waits_for_a_person_is_one_call(runtime: Runtime, ledger: Ledger, folder: Path) -> None:
    put(
        folder,
        "inner",
        WorkflowStep("ask", StepType.APPROVAL, description="Well?"),
        last(depends_on=("ask",)),
        constraints={"max_calls_per_hour": 1},
    )
    run_id = start(runtime, workflow("all", function("named", "inner")), folder=folder)
    assert settle(ledger, run_id)["status"] == "blocked"
    with ledger.write(actor="test") as tx:
        [approval] = list_approvals(tx, run_id=run_id)
        decide_approval(tx, approval.id, approved=True, by="me")
        resume_run(tx, runtime, run_id)
    assert settle(ledger, run_id)["status"] == "completed"
    with ledger.read() as tx:
        assert [call.ok for call in calls(tx, "inner")] == [True]


@pytest.mark.soak
def test_one_whose_worker_is_killed_is_one_call(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, folder: Path
) -> None:
    file = folder / "marks"
    given = {"file": str(file)}
    put(
        folder,
        "inner",
        function("before", "mark", input_mapping={**given, "name": "before", "value": 1}),
        function("dies", "mark_and_die", depends_on=("before",), input_mapping={**given, "name": "dies"}),
        last(depends_on=("dies",)),
        constraints={"max_calls_per_hour": 1},
    )
    fleet.add()
    run_id = start(runtime, workflow("all", function("named", "inner")), folder=folder)
    eventually(lambda: any(mark.startswith("dies") for mark in marks(file)))
    fleet.add()
    done = settle(ledger, run_id)
    assert done["status"] == "completed", done
    assert Counter(mark.partition(":")[0] for mark in marks(file)) == {"before": 1, "dies": 2}
    with ledger.read() as tx:
        assert [call.ok for call in calls(tx, "inner")] == [True]
