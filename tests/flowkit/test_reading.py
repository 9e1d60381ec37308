"""Reading and writing workflows in all the forms that are around."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import load_json
from ratchet.flowkit.reader import read_leniently, read_spec, read_text
from ratchet.flowkit.spec import OperationType, StepType, WorkflowSpec
from ratchet.flowkit.writer import write_spec, write_text

from . import fixtures
from .strategies import specs

FORMS: list[Callable[[], dict[str, Any]]] = [
    fixtures.portable,
    fixtures.braced,
    fixtures.old,
    fixtures.overseer,
]


@pytest.mark.soak
@given(specs)
def test_a_workflow_that_is_written_is_read_as_the_same_workflow(spec: WorkflowSpec) -> None:
    assert read_text(write_text(spec)) == spec


@pytest.mark.parametrize("form", FORMS)
def test_nothing_of_a_file_is_lost_by_reading_and_writing_it(form: Callable[[], dict[str, Any]]) -> None:
    written = write_spec(read_spec(form()))

    assert (
        written.items()
        >= {
            key: value
            for key, value in form().items()
            if key not in ("steps", "inputs", "outputs", "tools", "dependencies")
        }.items()
    )
    for before, after in zip(form()["steps"], written["steps"], strict=True):
        # What says nothing is left out: a null, an empty list.
        assert (
            after.items() >= {key: value for key, value in before.items() if value not in (None, [])}.items()
        )


@pytest.mark.parametrize("form", [fixtures.portable, fixtures.braced])
def test_a_file_in_the_usual_form_is_written_as_it_was(form: Callable[[], dict[str, Any]]) -> None:
    assert write_spec(read_spec(form())) == form()


@pytest.mark.parametrize("form", FORMS)
def test_writing_again_changes_nothing(form: Callable[[], dict[str, Any]]) -> None:
    once = write_spec(read_spec(form()))

    assert write_spec(read_spec(once)) == once


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
def test_a_byte_order_mark_is_no_part_of_the_document(mark: bytes) -> None:
    text = json.dumps(fixtures.portable())

    assert read_text(mark + text.encode()) == read_text(text)
    assert read_text(mark.decode() + text) == read_text(text)


def test_a_portable_workflow_carries_its_tools_and_lists_no_dependencies() -> None:
    spec = read_spec(fixtures.portable())

    assert spec.tool_definitions["translator"].fallback_tool == "cook"
    assert spec.tool_definitions["translator"].timeout == 120
    assert "dependencies" not in write_spec(spec)


def test_dependencies_are_read_and_what_else_stands_there_is_kept() -> None:
    data = fixtures.braced()
    data["dependencies"] |= {"pip_packages": ["pandas >= 2", "rich", {"name": "numpy"}], "system": ["git"]}

    spec = read_spec(data)

    assert spec.required_tools == ("explainer",)
    assert spec.pip_packages == ({"name": "pandas", "version": ">= 2"}, {"name": "rich"}, {"name": "numpy"})
    assert write_spec(spec)["dependencies"]["system"] == ["git"]


def test_what_is_as_usual_is_not_written() -> None:
    step = write_spec(read_spec(fixtures.small({"step_id": "a"})))["steps"][0]

    assert step == {
        "step_id": "a",
        "type": "existing_tool",
        "description": "",
        "tool": "echo",
        "input_mapping": {},
        "output_name": "output",
    }


def test_retries_are_written_in_full_when_there_are_any() -> None:
    step = write_spec(read_spec(fixtures.small({"step_id": "a", "retry_on_failure": True})))["steps"][0]

    assert step["retry_on_failure"] is True
    assert step["max_retries"] == 3


def test_inputs_outputs_and_tools_may_be_lists_or_short() -> None:
    spec = read_spec(
        fixtures.small(
            {"step_id": "a"},
            inputs=[{"name": "topic", "type": "string"}],
            outputs={"result": "steps.a.output"},
            tools=[{"tool_id": "echo", "type": "python", "source_code": "def run(): ..."}],
        )
    )

    assert spec.inputs[0].name == "topic"
    assert "name" not in spec.inputs[0].extra
    assert spec.outputs[0].source_reference == "steps.a.output"
    assert spec.tool_definitions["echo"].tool_type == "python"


def test_the_keys_of_old_files_are_understood() -> None:
    spec = read_spec(fixtures.old())
    look, copy = spec.steps

    assert [each.name for each in spec.inputs] == ["tool_id", "port", "label"]
    assert look.step_type is StepType.EXISTING_TOOL
    assert look.output_name == "needs"
    assert look.parallel_group == "first"
    assert look.input_mapping == {
        "config": '{"tool": "${inputs.tool_id}", "deep": false}',
        "port": "${inputs.port}",
    }
    assert copy.input_mapping == {
        "files": "${steps.look.needs.file_list}",
        "other": "{unknown}",
        "nested": [{"at": "${inputs.tool_id}"}],
    }


def test_steps_of_an_old_file_keep_its_order() -> None:
    def old(step_id: str, **more: Any) -> dict[str, Any]:
        return {"step_id": step_id, "tool": "t", "input": {}, "output_key": step_id, **more}

    def order(*steps: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        spec = read_spec({"workflow_id": "w", "steps": list(steps)})
        assert read_spec(write_spec(spec)) == spec
        return {step.step_id: step.depends_on for step in spec.steps}

    assert order(old("a"), old("b"), old("c")) == {"a": (), "b": ("a",), "c": ("b",)}
    assert order(old("a"), old("b", parallel_group=1), old("c", parallel_group=1), old("d")) == {
        "a": (),
        "b": ("a",),
        "c": ("a",),
        "d": ("b", "c"),
    }
    assert order(old("a"), old("b"), old("c", depends_on=["a"]))["c"] == ("a",)
    # One that takes what a later step makes was never run from top to bottom.
    assert order(old("a", input={"x": "{b}"}), old("b")) == {"a": (), "b": ()}
    assert order({"step_id": "a", "tool": "t"}, {"step_id": "b", "tool": "t"}) == {"a": (), "b": ()}


def test_an_input_from_another_step_is_a_step_to_wait_for() -> None:
    spec = read_spec(fixtures.overseer())

    assert spec.steps[1].depends_on == ("step1",)
    assert spec.steps[1].extra == {
        "task_for_node": "Translate the joke to French",
        "input_from_step": "step1",
    }


def test_new_keys_win_over_old_ones() -> None:
    step = read_spec(
        fixtures.small(
            {
                "step_id": "a",
                "input": {"x": 1},
                "input_mapping": {"y": 2},
                "output_key": "o",
                "output_name": "n",
            }
        )
    ).steps[0]

    assert step.input_mapping == {"y": 2}
    assert step.output_name == "n"


def test_a_step_without_a_type_calls_a_model() -> None:
    spec = read_spec({"workflow_id": "w", "steps": [{"step_id": "a", "prompt_template": "Hello"}]})

    assert spec.steps[0].step_type is StepType.LLM_CALL


def test_a_workflow_inside_a_step_is_read_with_everything_in_it() -> None:
    spec = read_spec(
        fixtures.small({"step_id": "inner", "type": "sub_workflow", "workflow_spec": fixtures.braced()})
    )

    nested = spec.steps[0].workflow_spec
    assert nested == read_spec(fixtures.braced())
    assert nested is not None
    assert nested.steps[0].operation_type is OperationType.TRANSFORMER


def test_everything_that_cannot_be_read_is_named_at_once() -> None:
    data = fixtures.small(
        {"step_id": "a", "type": "bogus", "timeout": "long", "depends_on": [1], "operation_type": "melter"},
        {"description": "no id"},
        {"step_id": 7},
        inputs={"x": {"required": "yes"}},
        version=1.0,
        dependencies=["flask"],
    )
    data["steps"].append("text")

    with pytest.raises(SpecError) as caught:
        read_spec(data)

    assert sorted(caught.value.problems) == [
        "dependencies must be an object, not a list",
        "input x: required must be true or false, not 'yes'",
        "step 2: step_id is missing",
        "step 4 must be an object, not 'text'",
        "step 7: step_id must be a text, not 7",
        "step a: depends_on must be a list of texts, not a list",
        "step a: operation_type must be one of combiner, transformer, splitter, filter, generator, validator, "
        "not 'melter'",
        "step a: timeout must be a number, not 'long'",
        "step a: type must be one of llm_call, python_tool, sub_workflow, existing_tool, approval, not 'bogus'",
        "version must be a text, not 1.0",
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"inputs": "topic"}, "inputs must be an object, not 'topic'"),
        ({"inputs": [{"name": "a"}, {"name": "a"}]}, "inputs has 'a' twice"),
        ({"outputs": [{"type": "string"}]}, "outputs must be objects with a name, not an object"),
        ({"dependencies": {"pip_packages": "rich"}}, "dependencies: pip_packages must be a list, not 'rich'"),
        (
            {"dependencies": {"pip_packages": [1]}},
            "dependencies: pip_packages must be objects with a name, not 1",
        ),
        ({"steps": [{"step_id": "a", "type": ["llm_call"]}]}, "step a: type must be one of"),
        (
            {"steps": [{"step_id": "a", "max_retries": 1.5}]},
            "step a: max_retries must be a whole number, not 1.5",
        ),
        ({"steps": [{"step_id": "a", "timeout": 10**400}]}, "step a: timeout must be a number, not 1000"),
        ({"steps": [{"step_id": "a", "input": "x"}]}, "step a: input must be an object, not 'x'"),
        (
            {"steps": [{"step_id": "a", "parallel_group": 1.5}]},
            "step a: parallel_group must be a whole number or",
        ),
        ({"steps": [{"step_id": "a", "workflow_spec": 1}]}, "step a: workflow_spec must be an object, not 1"),
        ({"steps": {"a": {}}}, "steps must be a list, not an object"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_key(more: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec({"workflow_id": "w", **more})

    (problem,) = caught.value.problems
    assert said in problem
    assert len(problem) < 300


def test_numbers_are_read_as_they_are_meant() -> None:
    step = read_spec(fixtures.small({"step_id": "a", "max_retries": 2.0, "depends_on": "b"})).steps[0]

    assert step.max_retries == 2
    assert isinstance(step.max_retries, int)
    assert step.depends_on == ("b",)


def test_a_document_that_is_too_large_is_not_read() -> None:
    with pytest.raises(SpecError, match="at most 10 are read"):
        load_json("[1, 2, 3, 4]", largest=10)


def test_what_can_be_read_of_a_bad_workflow_is_there_to_be_looked_at() -> None:
    reading = read_leniently(fixtures.small({"step_id": "a", "type": "bogus"}, {"step_id": "b"}))

    assert len(reading.problems) == 1
    assert [step.step_id for step in reading.spec.steps] == ["a", "b"]


def test_workflows_do_not_nest_without_end() -> None:
    data = fixtures.small({"step_id": "a"})
    for _ in range(10):
        data = fixtures.small({"step_id": "a", "type": "sub_workflow", "workflow_spec": data})

    with pytest.raises(SpecError, match="at most 10 deep"):
        read_spec(data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1, column 1"),
        ('{"steps": [}', "line 1, column 12"),
        ('{"workflow_id": "a",\n "workflow_id": "b"}', "'workflow_id' is twice"),
        ('{"x": NaN}', "NaN is not JSON"),
        ('{"x": 1e999}', "1e999 is too large"),
        ('{"x": "\\ud800"}', "half of a surrogate pair"),
        ('{"x": "a\\u0000"}', "NUL"),
        ("[" * 100_000, "nested too deeply"),
        ('{"x": ' + "[" * 200 + "]" * 200 + "}", "nested too deeply"),
        ('{"x": ' + "9" * 5000 + "}", "digits"),
        ("[]", "a workflow is a JSON object, not a list"),
        (b"\xff{}", "not UTF-8"),
    ],
)
def test_a_document_that_is_no_sound_json_is_refused(text: str | bytes, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_text(text)

    assert said in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes", {1: 2}])
def test_values_that_json_does_not_know_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match=r"JSON does not know|no text"):
        read_spec(fixtures.small({"step_id": "a", "input_mapping": {"x": value}}))
