"""Plans in the answers of models."""

import json
import re
import time
from typing import Any

import pytest

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.kernel import RatchetError
from ratchet.workflows.files import BadPlan, build_from_data, find_plan


def plan(**more: Any) -> dict[str, Any]:
    return {
        "description": "A joke in two languages",
        "steps": [
            {"step_id": "joke", "type": "llm_call", "prompt_template": "Tell a joke", "output_name": "text"},
            {
                "step_id": "french",
                "type": "llm_call",
                "prompt_template": "In French: {joke} ```json{}```",
                "input_mapping": {"joke": "steps.joke.text"},
                "parallel_group": 1,
            },
            {
                "step_id": "german",
                "type": "llm_call",
                "prompt_template": "In German, please",
                "parallel_group": 1,
                "depends_on": ["joke"],
            },
        ],
        **more,
    }


TEXT = json.dumps(plan(), indent=2)


def build(answer: str) -> WorkflowSpec:
    try:
        return build_from_data(find_plan(answer))
    except SpecError as error:
        raise BadPlan(error.problems) from None


@pytest.mark.parametrize(
    "answer",
    [
        TEXT,
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```",
        f"Here: {TEXT} done",
        f"Sure!\n```json{TEXT}```\nHope it helps {{smile}}",
        f'For example {{x}} or {{}} or {{"a": 1}}.\n{TEXT}\nSteps: {{"note": "that was all"}}',
        json.dumps({"workflow": plan()}),
        "\ufeff" + TEXT,
        TEXT.replace("Tell a joke", "Tell\na joke"),
    ],
)
def test_a_plan_is_found_wherever_it_stands(answer: str) -> None:
    spec = build(answer)

    assert [step.step_id for step in spec.steps] == ["joke", "french", "german"]
    assert spec.tags == ()
    assert check_spec(spec) == []


def test_nothing_of_a_plan_is_dropped() -> None:
    nested = plan(workflow_id="inner")
    extra_step = {
        "step_id": "more",
        "type": "sub_workflow",
        "workflow_spec": nested,
        "task_for_node": "Do more",
    }
    whole = plan(portable=True, tools={"t": {"type": "llm", "model": "m"}}, priority="high")
    whole["steps"].append(extra_step)

    spec = build(json.dumps(whole))

    _, french, german, more = spec.steps
    assert (french.parallel_group, german.parallel_group) == (1, 1)
    assert german.depends_on == ("joke",)
    assert more.workflow_spec == read_spec(nested)
    assert more.extra == {"task_for_node": "Do more"}
    assert spec.tool_definitions["t"].model == "m"
    assert spec.extra == {"priority": "high"}


@pytest.mark.parametrize("answer", ["no json here", "", "so {smile} {}", "{ " * 500_000, "}" * 500_000])
def test_an_answer_without_json_has_no_plan(answer: str) -> None:
    assert find_plan(answer) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (TEXT.replace('"llm_call"', '"bogus"', 1), "step joke: type must be one of"),
        (TEXT.replace('"step_id": "joke",', ""), "step 1: step_id is missing"),
        (TEXT.replace('"Tell a joke"', '"Tell ${steps.french.output}"'), "joke → french → joke"),
        (TEXT.replace("steps.joke.text", "steps.joke.txt"), "step joke has no output txt; it is called text"),
        (TEXT[:-2], "the JSON of the answer is broken: line 28, column"),
        (TEXT.replace('"text"\n', '"text",\n'), "the JSON of the answer is broken"),
        ('{"steps": []}', "at least one step"),
        ('{"steps": 7}', "steps must be a list, not 7"),
        ('The answer is {"answer": 42}.', "has JSON, but no object with a list of steps"),
        ("{'steps': [{'step_id': 'a'}]}", "has JSON, but no object with a list of steps"),
        ("{steps: [{step_id: a}]}", "has JSON, but no object with a list of steps"),
        ('{"steps": [{"step_id": "a", "step_id": "b"}]}', "'step_id' is twice"),
        ('{"steps": [{"step_id": "a", "timeout": NaN}]}', "NaN is not JSON"),
        ('{"steps": [{"step_id": "a", "timeout": 1e999}]}', "too large"),
        ('{"steps": [{"step_id": "a", "prompt_template": "\\ud800"}]}', "surrogate"),
        ('{"steps": [{"step_id": "a", "prompt_template": "\ud800"}]}', "surrogate"),
        ('{"steps": ' + "[" * 500 + "]" * 500 + "}", "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        ('{"a' * 200_000, "broken"),
        ('{"a":1,' * 100_000, "broken"),
        ('{"a": {"b": "' * 50_000, "broken"),
        ('{"steps": "' + "x" * 10_000_000, "at most 2,097,152 are read"),
    ],
)
def test_json_that_is_there_but_bad_is_an_error_and_never_replaced(answer: str, said: str) -> None:
    with pytest.raises(BadPlan) as caught:
        build(answer)

    assert said in str(caught.value)
    assert isinstance(caught.value, RatchetError)
    assert caught.value.hint


def test_a_part_of_a_broken_plan_is_not_taken_for_the_plan() -> None:
    whole = plan()
    whole["steps"].append(
        {"step_id": "more", "type": "sub_workflow", "workflow_spec": plan(workflow_id="inner")}
    )
    broken = json.dumps(whole).replace('"output_name": "text"}', '"output_name": "text",}', 1)

    with pytest.raises(BadPlan, match="broken"):
        build(broken)


def test_everything_that_is_wrong_with_a_plan_is_said_at_once() -> None:
    bad = plan()
    bad["steps"][0]["type"] = "bogus"
    bad["steps"][1]["depends_on"] = ["german", "ghost"]
    bad["steps"][2]["depends_on"] = ["french"]

    with pytest.raises(BadPlan) as caught:
        build_from_data(bad)

    assert len(caught.value.problems) == 3
    assert "french → german → french" in str(caught.value)


def test_of_several_plans_the_last_one_counts() -> None:
    first, last = plan(workflow_id="first"), plan(workflow_id="last")

    assert build(f"{json.dumps(first)}\nBetter:\n{json.dumps(last)}").workflow_id == "last"


def test_the_name_comes_from_the_plan_or_its_description() -> None:
    before = int(time.time())

    assert build(json.dumps(plan(workflow_id="own"))).workflow_id == "own"
    made = build(json.dumps(plan(description="Two jokes -- about cats. And dogs."))).workflow_id
    matched = re.fullmatch(r"two_jokes_about_cats_(\d+)", made)
    assert matched
    assert before <= int(matched[1]) <= time.time()
    assert re.fullmatch(r"workflow_\d+", build(json.dumps(plan(description="???"))).workflow_id)


def test_a_plan_says_who_made_it_and_when() -> None:
    spec = build(TEXT)

    assert spec.created_by == "ratchet"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", spec.created_at)


@pytest.mark.parametrize("data", [None, [], 7, "not json"])
def test_what_is_no_json_object_is_no_workflow(data: Any) -> None:
    with pytest.raises(BadPlan):
        build_from_data(data)
