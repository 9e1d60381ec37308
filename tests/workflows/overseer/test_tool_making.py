"""Tools that are written for a plan: tried out before they count, carried by the workflow, and never half there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import StepType, WorkflowSpec, WorkflowStep
from ratchet.flowkit.validation import check_spec
from ratchet.kernel import Misuse, NotFound, RunStatus
from ratchet.ledger.tools import get_tool, list_versions
from ratchet.modelserver import answer
from ratchet.question import BadAnswer, EngineAnswer
from ratchet.tools.call import Occasion
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import tool_from_definition
from ratchet.tools.registry import open_toolbox
from ratchet.workflows.overseer import planned_of, start_fill
from ratchet.workflows.overseer.tool_writer import read_answer
from ratchet.workflows.saved import unwritten
from tests.waiting import eventually
from tests.workflows.overseer.conftest import Desk
from tests.workflows.overseer.plans import GOOD_SOURCE, plan, source, step, wants_a_tool

only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
SHOUT = "Turn a text into capitals"


@pytest.mark.soak
def test_a_tool_whose_example_fails_is_sent_back_and_the_next_one_is_carried_by_the_workflow(
    desk: Desk,
) -> None:
    script = desk.open(
        answer(wants_a_tool()),
        answer(source("def run(text):\n    return text.lower()\n")),
        answer(source(GOOD_SOURCE)),
    )
    planned = desk.plan(SHOUT)
    [name] = planned.tools_generated
    assert name == "word_report_shout"
    [problem] = planned.repaired
    assert "$ is 'ab', not 'AB'" in problem
    assert problem in script.requests[2].said
    spec = read_spec(planned.spec)
    assert spec.portable
    assert check_spec(spec, known_tools=()) == []
    assert (spec.steps[0].tool_name, spec.steps[0].generate_tool) == (name, False)
    tool = tool_from_definition(spec.tool_definitions[name])
    called = asyncio.run(call_tool(tool, {"text": "héllo"}, Occasion(desk.runtime)))
    assert called.value == "HÉLLO"
    assert [each.role for each in desk.sessions(planned.run_id)] == ["tool writer", "tool writer", "overseer"]
    assert planned.usage.input_tokens == 300
    with desk.runtime.ledger.read() as tx, pytest.raises(NotFound):
        get_tool(tx, name)


@pytest.mark.soak
@only_sqlite
def test_a_tool_that_never_passes_fails_the_plan_and_leaves_nothing(desk: Desk) -> None:
    two = plan(
        step("shout", type="python_tool", tool="shouter", generate_tool=True),
        step("whisper", type="python_tool", tool="whisperer", generate_tool=True),
    )
    broken = answer(source("def run(text:\n"))
    desk.open(answer(two), answer(source(GOOD_SOURCE)), broken, broken, **{"workflows.repairs": 1})
    run = desk.run(SHOUT, keep_tools=True)
    assert run.status is RunStatus.FAILED
    assert run.result["step"] == "tool:whisper"
    assert "SyntaxError" in (run.reason or "")
    assert desk.saved() == []
    with desk.runtime.ledger.read() as tx, pytest.raises(NotFound):
        get_tool(tx, "shouter")


@pytest.mark.soak
@only_sqlite
def test_a_tool_is_kept_in_the_toolbox_when_that_is_asked_for(desk: Desk) -> None:
    desk.open(answer(wants_a_tool(tool="shouter")), answer(source(GOOD_SOURCE)))
    planned = desk.plan(SHOUT, keep_tools=True)
    assert planned.tools_kept == planned.tools_generated == ("shouter",)
    toolbox = open_toolbox(desk.runtime.ledger, desk.runtime.settings, desk.home)
    assert toolbox.get("shouter").tool.description == "Turns a text into capitals."
    assert "shouter" in [each.name for each in toolbox.list()]
    assert "shouter" in [each.tool.id for each in toolbox.search(SHOUT)]
    toolbox.close()
    with desk.runtime.ledger.read() as tx:
        assert [each.origin for each in list_versions(tx, get_tool(tx, "shouter").id)] == ["generated"]


@pytest.mark.soak
@only_sqlite
def test_a_new_tool_takes_the_name_of_no_other(desk: Desk) -> None:
    desk.open(answer(wants_a_tool(tool="tally_words")), answer(source(GOOD_SOURCE)))
    assert desk.plan(SHOUT, keep_tools=True).tools_kept == ("tally_words_2",)


def read(data: dict[str, Any], **inputs: Any) -> list[str]:
    """What is wrong with a tool for a step with these inputs."""
    made = WorkflowStep(
        "shout",
        StepType.PYTHON_TOOL,
        "shouts",
        generate_tool=True,
        input_mapping=inputs or {"text": "inputs.text"},
    )
    given = EngineAnswer(session=1, text="", output=data, simulated=False, about={})
    try:
        read_answer("shouter", made, given)
    except BadAnswer as bad:
        return list(bad.problems)
    return []


@only_sqlite
def test_the_tools_that_a_workflow_asks_for_are_written_into_it(desk: Desk) -> None:
    script = desk.open(answer(source(GOOD_SOURCE, output="wrong")), answer(source(GOOD_SOURCE)))
    asks = WorkflowStep("shout", StepType.PYTHON_TOOL, "Turns a text into capitals.", generate_tool=True)
    spec = WorkflowSpec("shouting", steps=(replace(asks, input_mapping={"text": "hello"}),))
    run_id = start_fill(desk.runtime, spec, actor="test")
    eventually(lambda: desk.look(run_id).status.stands)
    planned = planned_of(desk.look(run_id))
    assert (planned.workflow, planned.tools_generated) == ("shouting", ("shouting_shout",))
    assert unwritten(read_spec(planned.spec)) == []
    assert "Turns a text into capitals." in script.requests[0].said
    assert len(script.requests) == 2
    assert [each.name for each in desk.saved()] == ["shouting"]
    with pytest.raises(Misuse, match="no step of shouting waits"):
        start_fill(desk.runtime, read_spec(planned.spec), actor="test")


def test_a_tool_whose_parts_fit_together_is_taken() -> None:
    assert read(source(GOOD_SOURCE)) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": "x = 1\n"}, "defines no function run"),
        ({"source": "#" * 100_001}, "100,001 characters"),
        ({"examples": []}, "0 examples"),
        ({"input_schema": {"type": "strange"}}, "not a JSON Schema"),
        ({"input_schema": {"type": "string"}}, '"type": "object"'),
        (
            {"input_schema": {"type": "object", "properties": {"txt": {}}}},
            "has no input text; it has txt",
        ),
    ],
)
def test_a_tool_whose_parts_do_not_fit_is_sent_back(change: dict[str, Any], says: str) -> None:
    assert any(says in problem for problem in read(source(GOOD_SOURCE, **change)))


def test_a_tool_may_not_need_what_its_step_does_not_give() -> None:
    assert read(source(GOOD_SOURCE), other="inputs.other") == [
        "input_schema: the tool needs the input text, which the step does not give",
        "input_schema: the tool has no input other; it has text",
    ]
