"""Workflows that run on a worker: results, records, the cache, pauses, approvals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ratchet.flowkit.spec import Repeat, StepType, WorkflowInput, WorkflowOutput, WorkflowStep
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Misuse, RunStatus, StepStatus
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger import events as log
from ratchet.ledger.questions import decide_approval, list_approvals
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.ledger.tools import calls_of_tool, find_tool
from ratchet.runtime import Runtime, Worker, cancel_run, pause_run, resume_run
from ratchet.runtime.job import unfinished_jobs
from ratchet.runtime.runs import answer_approval
from ratchet.tools.definition import folder_of
from ratchet.workflows.runs import prepare, start_workflow
from tests.runtime.kinds import marks
from tests.waiting import eventually
from tests.workflows.running.settled import run, settle, start
from tests.workflows.running.tools import ADD, DOUBLE, FAIL, function, python, sums, workflow

pytestmark = pytest.mark.usefixtures("worker")


def kinds_of(ledger: Ledger, run_id: int) -> list[str]:
    with ledger.read() as tx:
        return [event.type for event in log.since(tx.connection, where=EventFilter(run_id=run_id))]


def test_a_workflow_runs_in_sandboxed_processes_and_everything_is_on_record(
    runtime: Runtime, ledger: Ledger
) -> None:
    done = run(runtime, sums(), {"number": 5})
    assert (done["status"], done["outputs"]) == ("completed", {"sum": 31})
    assert {name: step["value"] for name, step in done["steps"].items()} == {
        "double": 10,
        "left": 20,
        "right": 11,
        "sum": 31,
    }
    metrics = done["steps"]["sum"]["metrics"]
    assert metrics["exit_code"] == 0
    assert metrics["wall_ms"] > 0
    assert metrics["peak_bytes"] > 1_000_000
    with ledger.read() as tx:
        steps = list_steps(tx, done["run_id"])
        assert {step.status for step in steps} == {StepStatus.COMPLETED}
        assert [len(list_attempts(tx, step.id)) for step in steps] == [1, 1, 1, 1]
        tool = find_tool(tx, "double", folder=folder_of("sums"))
        assert tool is not None
        calls = calls_of_tool(tx, tool.id)
    assert [(call.step, call.ok, call.input, call.output) for call in calls] == [
        ("left", True, {"number": 10}, 20),
        ("double", True, {"number": 5}, 10),
    ]
    assert kinds_of(ledger, done["run_id"]).count("step.completed") == 4


def test_what_was_computed_before_is_not_computed_again(runtime: Runtime, ledger: Ledger) -> None:
    run(runtime, sums(), {"number": 3})
    again = run(runtime, sums(), {"number": 3})
    assert {name: step["cached"] for name, step in again["steps"].items()} == dict.fromkeys(
        again["steps"], True
    )
    assert again["outputs"] == {"sum": 19}
    spec = sums()
    changed = workflow(
        "sums",
        *spec.steps,
        tools={"double": DOUBLE, "add": ADD + "\n# changed\n"},
        inputs=spec.inputs,
        outputs=spec.outputs,
    )
    partly = run(runtime, changed, {"number": 3})
    assert {name for name, step in partly["steps"].items() if step["cached"]} == {"double", "left"}
    assert not any(
        step["cached"] for step in run(runtime, spec, {"number": 3}, cached=False)["steps"].values()
    )


@pytest.mark.soak
def test_sleepers_of_one_group_sleep_at_the_same_time_however_few_cores_there_are(runtime: Runtime) -> None:
    number = 2 * (os.cpu_count() or 1) + 1
    nap = "import time\ndef run(n):\n    began = time.time()\n    time.sleep(5)\n    return [began, time.time()]\n"
    steps = [python(f"s{each}", "nap", input_mapping={"n": each}, parallel_group=1) for each in range(number)]
    done = run(runtime, workflow("naps", *steps, tools={"nap": nap}))
    spans = [step["value"] for step in done["steps"].values()]
    assert max(began for began, _ in spans) < min(ended for _, ended in spans)


def test_a_step_may_refuse_the_cache(runtime: Runtime) -> None:
    spec = workflow(
        "fresh", python("a", "double", input_mapping={"number": 1}, cache=False), tools={"double": DOUBLE}
    )
    run(runtime, spec)
    assert not run(runtime, spec)["steps"]["a"]["cached"]


@pytest.mark.soak
def test_a_failed_step_is_named_and_what_else_could_be_done_is_kept(runtime: Runtime, ledger: Ledger) -> None:
    spec = workflow(
        "half",
        python("bad", "fail", retry_on_failure=True, max_retries=1),
        python("after", "double", depends_on=("bad",), input_mapping={"number": 1}),
        python("good", "double", input_mapping={"number": 4}),
        tools={"fail": FAIL, "double": DOUBLE},
    )
    done = run(runtime, spec)
    assert (done["status"], done["outputs"]) == ("failed", {"good": 8})
    assert done["error"].startswith("bad: ")
    assert "no luck" in done["error"]
    assert (done["steps"]["bad"]["tries"], done["steps"]["after"]["status"]) == (2, "skipped")
    assert "needs bad" in done["steps"]["after"]["reason"]
    with ledger.read() as tx:
        bad = next(step for step in list_steps(tx, done["run_id"]) if step.name == "bad")
        assert [str(attempt.outcome) for attempt in list_attempts(tx, bad.id)] == ["failed", "failed"]
    assert "step.retrying" in kinds_of(ledger, done["run_id"])


def test_conditions_lists_and_workflows_inside_are_recorded_step_by_step(runtime: Runtime) -> None:
    inner = workflow(
        "inner",
        python("twice", "double", input_mapping={"number": "inputs.n"}),
        tools={"double": DOUBLE},
        inputs=(WorkflowInput("n", "number"),),
    )
    spec = workflow(
        "outer",
        python("never", "double", when="inputs.mode == 'other'", input_mapping={"number": 1}),
        WorkflowStep(
            "each", StepType.SUB_WORKFLOW, workflow_spec=inner, for_each=[1, 2], input_mapping={"n": "item"}
        ),
        tools={"double": DOUBLE},
        inputs=(WorkflowInput("mode", default="this"),),
    )
    done = run(runtime, spec)
    assert done["outputs"] == {"each": [{"twice": 2}, {"twice": 4}]}
    assert {name: step["status"] for name, step in done["steps"].items()} == {
        "never": "skipped",
        "each": "completed",
        "each[0]": "completed",
        "each[1]": "completed",
        "each[0]/twice": "completed",
        "each[1]/twice": "completed",
    }


@pytest.mark.soak
def test_tools_that_are_workflows_are_run_inside_one_another_and_in_the_place_of_others(
    runtime: Runtime, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    for name, calls in (("inner", "identity"), ("outer", "inner")):
        inside = workflow(
            name,
            function("only", calls, input_mapping={"value": "inputs.value"}),
            inputs=(WorkflowInput("value", "number"),),
            outputs=(WorkflowOutput("value", source_reference="steps.only.output"),),
        )
        tool = {"type": "workflow", "workflow": {"spec": write_spec(inside)}}
        (tmp_path / "tools" / f"{name}.yaml").write_text(json.dumps(tool))
    given = {"value": 7}
    spec = workflow(
        "all",
        function("named", "outer", input_mapping=given),
        python("instead", "fail", fallback_tool="inner", input_mapping=given),
        tools={"fail": FAIL},
    )
    done = run(runtime, spec, folder=tmp_path)
    assert done["outputs"] == {"named": {"value": {"value": 7}}, "instead": {"value": 7}}, done
    assert done["steps"]["named/only/only"]["status"] == "completed"


def test_a_large_value_goes_through_the_artifact_store(runtime: Runtime) -> None:
    spec = workflow(
        "large",
        python("make", "make", input_mapping={"size": 300_000}),
        python("measure", "measure", input_mapping={"text": "steps.make.output"}),
        tools={
            "make": "def run(size):\n    return 'x' * size\n",
            "measure": "def run(text):\n    return len(text)\n",
        },
    )
    done = run(runtime, spec)
    assert done["outputs"] == {"measure": 300_000}
    assert len(done["steps"]["make"]["value"]) == 300_000


def test_what_a_node_writes_to_stderr_is_told_while_it_runs_and_is_no_failure(
    runtime: Runtime, ledger: Ledger
) -> None:
    spec = workflow(
        "warns",
        python("a", "warn"),
        tools={"warn": "import sys\ndef run():\n    print('careful', file=sys.stderr)\n    return 1\n"},
    )
    done = run(runtime, spec)
    assert done["status"] == "completed"
    with ledger.read() as tx:
        said = log.since(tx.connection, where=EventFilter(run_id=done["run_id"], type="step.output"))
    assert "careful" in "".join(event.data["text"] for event in said)


@pytest.mark.soak
def test_a_person_is_waited_for_without_holding_up_the_rest(runtime: Runtime, ledger: Ledger) -> None:
    spec = workflow(
        "asks",
        WorkflowStep(
            "ask", StepType.APPROVAL, prompt_template="Publish {what}?", input_mapping={"what": "it"}
        ),
        python("after", "double", depends_on=("ask",), input_mapping={"number": 1}),
        python("beside", "double", input_mapping={"number": 2}),
        tools={"double": DOUBLE},
    )
    run_id = start(runtime, spec)
    held = settle(ledger, run_id)
    assert (held["status"], held["steps"]["beside"]["value"], held["steps"]["ask"]["status"]) == (
        "blocked",
        4,
        "blocked",
    )
    with ledger.write(actor="test") as tx:
        [approval] = list_approvals(tx, run_id=run_id)
        assert approval.question == "Publish it?"
        decide_approval(tx, approval.id, approved=True, by="me", comment="fine")
        resume_run(tx, runtime, run_id)
    done = settle(ledger, run_id)
    assert done["status"] == "completed"
    assert done["steps"]["ask"]["value"] == {"approved": True, "comment": "fine", "by": "me"}
    assert done["steps"]["beside"]["tries"] == 1


def test_a_person_is_asked_for_more_than_yes_or_no(runtime: Runtime, ledger: Ledger) -> None:
    wanted = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    ask = WorkflowStep("ask", StepType.APPROVAL, description="How large?", answer_schema=wanted)
    twice = python("twice", "double", input_mapping={"number": "steps.ask.output.size"})
    run_id = start(runtime, workflow("asks_more", ask, twice, tools={"double": DOUBLE}))
    assert settle(ledger, run_id)["status"] == "blocked"

    def answer(given: object) -> None:
        with ledger.write(actor="test") as tx:
            [asked] = list_approvals(tx, run_id=run_id)
            assert asked.answer_schema == wanted
            answer_approval(tx, runtime, asked.id, approved=True, by="me", answer=given)

    for wrong, why in ((None, "no answer was given"), ({"size": "XL"}, "size must be of type integer")):
        with pytest.raises(Misuse, match=why):
            answer(wrong)
    answer({"size": 21})

    assert settle(ledger, run_id)["outputs"] == {"twice": 42}


def test_rounds_are_done_each_by_itself_and_known_the_next_time(runtime: Runtime) -> None:
    spec = workflow(
        "rolls",
        python("roll", "roll", repeat=Repeat("round >= 3", 9)),
        tools={"roll": "import random\ndef run():\n    return random.getrandbits(64)\n"},
    )
    first, again = (run(runtime, spec) for _ in range(2))

    rolled = [first["steps"][f"roll[{number}]"]["value"] for number in range(4)]
    assert len(set(rolled)) == 4
    assert again["steps"]["roll[2]"]["cached"]
    assert again["outputs"] == {"roll": rolled[3]}


@pytest.mark.soak
def test_each_line_of_a_step_is_done_while_it_still_speaks(
    runtime: Runtime, ledger: Ledger, tmp_path: Path
) -> None:
    """The one that speaks says nothing more before the last line has left its mark."""
    given = {"file": str(tmp_path / "marks")}
    spec = workflow(
        "talk",
        function("say", "speak", stream=True, input_mapping={**given, "lines": ["a", "b", "c"]}),
        function("hear", "mark", for_each="steps.say.output", input_mapping={**given, "name": "item"}),
        function("count", input_mapping={"value": "steps.say.output"}),
    )
    done = run(runtime, spec)
    assert (done["status"], done["steps"]["say"]["value"]) == ("completed", ["a", "b", "c"])
    assert [line.partition(":")[0] for line in marks(tmp_path / "marks")] == ["a", "b", "c"]
    with ledger.read() as tx:
        steps = {step.name: step for step in list_steps(tx, done["run_id"])}
    assert {"hear[0]", "hear[1]", "hear[2]"} <= steps.keys()
    assert {step.status for step in steps.values()} == {StepStatus.COMPLETED}


def test_what_a_node_yields_goes_from_step_to_step_line_by_line(runtime: Runtime) -> None:
    spec = workflow(
        "rows",
        python("rows", "rows", stream=True, input_mapping={"n": 3}),
        python(
            "twice", "double", for_each="steps.rows.output", stream=True, input_mapping={"number": "item"}
        ),
        python("again", "double", for_each="steps.twice.output", input_mapping={"number": "item"}),
        tools={"rows": "def run(n):\n    yield from range(n)\n", "double": DOUBLE},
    )
    assert run(runtime, spec)["outputs"] == {"again": [0, 4, 8]}
    assert run(runtime, spec)["outputs"] == {"again": [0, 4, 8]}


def test_a_refusal_fails_the_step_with_the_words_of_the_person(runtime: Runtime, ledger: Ledger) -> None:
    run_id = start(runtime, workflow("asks", WorkflowStep("ask", StepType.APPROVAL, description="Well?")))
    settle(ledger, run_id)
    with ledger.write(actor="test") as tx:
        [approval] = list_approvals(tx, run_id=run_id)
        decide_approval(tx, approval.id, approved=False, by="me", comment="not today")
        resume_run(tx, runtime, run_id)
    assert settle(ledger, run_id)["error"] == "ask: refused by me: not today"


@pytest.mark.soak
def test_a_paused_run_goes_on_where_it_was_and_tries_again_what_had_failed(
    runtime: Runtime, ledger: Ledger, tmp_path: Path
) -> None:
    file = str(tmp_path / "marks")
    spec = workflow(
        "pauses",
        function("first", "mark", input_mapping={"file": file, "name": "first"}),
        function("bad", "fail_twice", input_mapping={"file": str(tmp_path / "bad"), "name": "bad"}),
        function(
            "long",
            "mark_slowly",
            depends_on=("first",),
            input_mapping={"file": file, "name": "long", "seconds": 60},
        ),
    )
    run_id = start(runtime, spec)
    eventually(lambda: len(marks(tmp_path / "marks")) == 2 and len(marks(tmp_path / "bad")) == 1)
    with ledger.write(actor="test") as tx:
        pause_run(tx, runtime, run_id)
    eventually(lambda: _idle(ledger, run_id))
    with ledger.write(actor="test") as tx:
        resume_run(tx, runtime, run_id)
    eventually(lambda: len(marks(tmp_path / "marks")) == 3 and len(marks(tmp_path / "bad")) == 2)
    with ledger.write(actor="test") as tx:
        cancel_run(tx, runtime, run_id)
        assert get_run(tx, run_id).status is RunStatus.CANCELLED
    assert [line.partition(":")[0] for line in marks(tmp_path / "marks")] == ["first", "long", "long"]


def _idle(ledger: Ledger, run_id: int) -> bool:
    with ledger.read() as tx:
        return not unfinished_jobs(tx, run_id)


@pytest.mark.soak
def test_cancelling_ends_the_processes_of_its_steps(runtime: Runtime, ledger: Ledger) -> None:
    spec = workflow(
        "hangs", python("hang", "hang"), tools={"hang": "import time\ndef run():\n    time.sleep(600)\n"}
    )
    run_id = start(runtime, spec)
    eventually(lambda: "step.running" in kinds_of(ledger, run_id))
    with ledger.write(actor="test") as tx:
        cancel_run(tx, runtime, run_id)
    eventually(lambda: _idle(ledger, run_id))
    with ledger.read() as tx:
        assert {step.status for step in list_steps(tx, run_id)} == {StepStatus.CANCELLED}


def test_a_run_that_is_cancelled_in_full_flow_is_not_tried_again(
    runtime: Runtime, ledger: Ledger, tmp_path: Path
) -> None:
    given = {"file": str(tmp_path / "marks"), "seconds": 0.01}
    steps = [function(f"s{n}", "mark_slowly", input_mapping={**given, "name": f"s{n}"}) for n in range(200)]
    run_id = start(runtime, workflow("flow", *steps))
    eventually(lambda: len(marks(tmp_path / "marks")) > 20)
    with ledger.write(actor="test") as tx:
        cancel_run(tx, runtime, run_id)
    eventually(lambda: _idle(ledger, run_id))
    with ledger.read() as tx:
        statuses = {step.status for step in list_steps(tx, run_id)}
    assert statuses <= {StepStatus.COMPLETED, StepStatus.CANCELLED}
    assert "job.retrying" not in kinds_of(ledger, run_id)


def test_a_tool_in_a_file_beside_the_workflow_is_fixed_when_the_run_is_made(
    runtime: Runtime, ledger: Ledger, tmp_path: Path, worker: Worker
) -> None:
    folder = tmp_path / "flow"
    folder.mkdir()
    (folder / "tool.py").write_text(DOUBLE)
    spec = workflow(
        "files", WorkflowStep("a", StepType.PYTHON_TOOL, tool_path="tool.py", input_mapping={"number": 4})
    )
    plan = prepare(runtime, spec, {}, folder=folder)
    (folder / "tool.py").write_text(FAIL)
    with ledger.write(actor="test") as tx:
        run_id = start_workflow(tx, runtime, plan)
    assert settle(ledger, run_id)["outputs"] == {"a": 8}


@pytest.mark.soak
def test_a_tool_is_not_called_more_often_than_it_may_be(runtime: Runtime) -> None:
    folder = runtime.home / "tools"
    folder.mkdir()
    (folder / "rare.yaml").write_text(
        "name: rare\ntype: python\nconstraints: {max_calls_per_hour: 1}\n"
        "python:\n  source: |\n    def run(n):\n      return n\n"
    )
    spec = workflow(
        "rarely",
        function("first", "rare", input_mapping={"n": 1}),
        function("second", "rare", input_mapping={"n": 2}, depends_on=("first",)),
    )
    done = run(runtime, spec)
    assert (done["steps"]["first"]["value"], done["steps"]["second"]["status"]) == (1, "failed")
    assert "1 times an hour" in done["error"]
    assert "wait" in done["steps"]["second"]["hint"]
