"""Everything that is wrong with a workflow is found before it runs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowInput, WorkflowSpec, WorkflowStep
from ratchet.flowkit.validation import check_spec, require_valid

from . import fixtures


def problems(*steps: dict[str, Any], **more: Any) -> list[str]:
    return check_spec(read_spec(fixtures.small(*steps, **more)))


@pytest.mark.parametrize("form", [fixtures.portable, fixtures.braced, fixtures.old, fixtures.overseer])
def test_the_forms_that_are_around_are_valid(form: Callable[[], dict[str, Any]]) -> None:
    assert check_spec(read_spec(form())) == []


def test_a_workflow_with_everything_in_it_is_valid() -> None:
    assert (
        problems(
            {"step_id": "load", "input_mapping": {"path": "inputs.path", "later": "${steps.zip.output}"}},
            {
                "step_id": "each",
                "type": "llm_call",
                "for_each": "steps.load.output.rows",
                "prompt_template": 'Say {row} of ${inputs.path} number ${index}; braces: {{row}} {"a": 1}',
                "input_mapping": {"row": "item.name", "raw": "$${inputs.x} ${HOME}"},
                "when": "len(steps.load.output.rows) > 0",
            },
            {"step_id": "ask", "type": "approval", "description": "Continue?", "depends_on": ["each"]},
            {"step_id": "zip", "input_mapping": {"x": [1, {"deep": "inputs.numbers[0]"}]}},
            {
                "step_id": "inner",
                "type": "sub_workflow",
                "input_mapping": {"topic": "inputs.path"},
                "workflow_spec": fixtures.portable(),
            },
            inputs={"path": {"type": "string"}, "numbers": {"type": "array", "default": [1]}},
            outputs={"a": "steps.each.output", "b": "${steps.inner.output.card}", "c": "inputs.path"},
            **{"x-note": {"anything": True}},
        )
        == []
    )


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"step_id": "a b"}, "step 1: step_id 'a b' may only have letters, digits, _ and -"),
        ({"step_id": ""}, "step 1: step_id is missing"),
        ({"step_id": "a" * 101}, "has 101 characters"),
        ({"step_id": "a\n"}, "may only have letters"),
        ({"step_id": "a", "output_name": "x.y"}, "step a: output_name 'x.y' may only have"),
        ({"step_id": "a", "depends_on": ["b"]}, "step a: depends on b, which does not exist"),
        ({"step_id": "a", "depends_on": ["a"]}, "step a: waits for itself"),
        ({"step_id": "a", "input_mapping": {"x": "steps.a.output"}}, "step a: waits for itself"),
        ({"step_id": "a", "when": "steps.a.output > 1"}, "step a: waits for itself"),
        (
            {"step_id": "a", "input_mapping": {"x": {"y": "inputs.topik"}}},
            "step a: input x: inputs.topik: there is no input topik (did you mean topic?)",
        ),
        ({"step_id": "a", "input_mapping": {"x": "a ${steps.b.output}"}}, "there is no step b"),
        ({"step_id": "a", "input_mapping": {"x": "steps.first"}}, "names no output; write steps.first.rows"),
        (
            {"step_id": "a", "input_mapping": {"x": "steps.first.lines"}},
            "step first has no output lines; it is called rows",
        ),
        ({"step_id": "a", "input_mapping": {"x": "inputs..topic"}}, "'inputs..topic' looks like a reference"),
        (
            {"step_id": "a", "input_mapping": {"x": "${input.topic}"}},
            "'${input.topic}' looks like a reference",
        ),
        ({"step_id": "a", "input_mapping": {"x": "${item.name}"}}, "'${item.name}' looks like a reference"),
        (
            {"step_id": "a", "input_mapping": {"x": "{{ inputs.topic }}"}},
            "'{{ inputs.topic }' is no reference; write ${inputs.topic}",
        ),
        ({"step_id": "a", "prompt_template": "On {inputs.topic}"}, "prompt_template: '{inputs.topic}' is no"),
        (
            {"step_id": "a", "prompt_template": "On ${inputs.none}"},
            "prompt_template: inputs.none: there is no",
        ),
        ({"step_id": "a", "prompt_template": "On {topic}"}, "prompt_template has {topic}, but input_mapping"),
        ({"step_id": "a", "when": "inputs.topic >"}, "step a: the condition 'inputs.topic >' cannot be"),
        ({"step_id": "a", "when": "inputs.none == 1"}, "when: inputs.none: there is no input none"),
        ({"step_id": "a", "for_each": ["x"], "when": "item == 1"}, "when: item is not known yet"),
        ({"step_id": "a", "for_each": "tea"}, "for_each needs a list or a reference to one"),
        ({"step_id": "a", "for_each": {"a": 1}}, "for_each needs a list or a reference to one"),
        ({"step_id": "a", "for_each": "inputs.topic"}, "but input topic is of the type string"),
        ({"step_id": "a", "for_each": "inputs.none"}, "for_each: inputs.none: there is no input none"),
        ({"step_id": "a", "timeout": 0}, "timeout must be between 0 and 2678400 seconds, not 0"),
        ({"step_id": "a", "timeout": 1e9}, "not 1e+09"),
        ({"step_id": "a", "max_retries": -1}, "max_retries must be between 0 and 100, not -1"),
        ({"step_id": "a", "backoff_seconds": 4000}, "backoff_seconds must be between 0 and 3600, not 4000"),
        ({"step_id": "a", "tool": None}, "step a: needs a tool"),
        (
            {"step_id": "a", "tool": "", "type": "llm_call", "prompt_template": "x"},
            "name of its tool is empty",
        ),
        ({"step_id": "a", "type": "llm_call", "tool": None}, "needs a prompt_template or a tool"),
        ({"step_id": "a", "type": "python_tool", "tool": None}, "a tool, a tool_path or generate_tool"),
        (
            {"step_id": "a", "type": "python_tool", "generate_tool": True},
            "only be generated from a description",
        ),
        ({"step_id": "a", "type": "approval"}, "an approval needs a question"),
        ({"step_id": "a", "type": "sub_workflow"}, "either a workflow_path or a workflow_spec"),
        (
            {
                "step_id": "a",
                "type": "sub_workflow",
                "workflow_path": "x",
                "workflow_spec": fixtures.overseer(),
            },
            "either a workflow_path or a workflow_spec",
        ),
        ({"step_id": "a", "depend_on": ["first"]}, "there is no key 'depend_on'; did you mean 'depends_on'?"),
        ({"step_id": "a", "timeout_ms": 5}, "did you mean 'timeout'?"),
        ({"step_id": "a", "while": "inputs.x"}, "there is no key 'while'; did you mean 'repeat'?"),
        ({"step_id": "a", "max_iterations": 3}, "there is no key 'max_iterations'; did you mean 'repeat'?"),
        ({"step_id": "a", "loop": ["x"]}, "there is no key 'loop'; did you mean 'repeat'?"),
        ({"step_id": "a", "run_if": "true"}, "there is no key 'run_if'; did you mean 'when'?"),
        ({"step_id": "a", "secrets": ["KEY"]}, "secrets are given to the file of a python_tool"),
        (
            {"step_id": "a", "type": "python_tool", "tool_path": "a.py", "secrets": ["sk-123 456"]},
            "it never holds the secret itself",
        ),
        ({"step_id": "a", "repeat": {"until": "last > 1", "limit": 0}}, "limit must be between 1 and 10,000"),
        ({"step_id": "a", "repeat": {"until": "item > 1", "limit": 2}}, "item is only known in a step with"),
        ({"step_id": "a", "repeat": {"until": "last >", "limit": 2}}, "cannot be understood"),
        ({"step_id": "a", "when": "last > 1"}, "when: last is not known yet"),
        ({"step_id": "a", "backoff_jitter": 2}, "backoff_jitter must be between 0 and 1"),
        ({"step_id": "a", "backoff_factor": 0.5}, "backoff_factor must be between 1 and 100"),
        ({"step_id": "a", "answer_schema": {"type": "object"}}, "only an approval has one"),
        (
            {"step_id": "a", "type": "approval", "description": "?", "answer_schema": {"type": "number?"}},
            "there is no type",
        ),
        (
            {"step_id": "a", "type": "approval", "description": "?", "answer_schema": {"required": 5}},
            "it is no JSON Schema",
        ),
        ({"step_id": "a", "zzz": 1}, "there is no key 'zzz'; a key of your own begins with x-"),
        ({"step_id": "a", "prompt": "Hello"}, "did you mean 'prompt_template'?"),
    ],
)
def test_what_is_wrong_with_a_step_is_said_with_its_name(step: dict[str, Any], said: str) -> None:
    found = check_spec(
        read_spec(
            {
                "workflow_id": "w",
                "inputs": {"topic": {"type": "string"}},
                "steps": [
                    {"type": "existing_tool", "tool": "echo", **step},
                    {"step_id": "first", "type": "existing_tool", "tool": "echo", "output_name": "rows"},
                ],
            }
        )
    )

    assert any(said in problem for problem in found), found
    assert len(found) == 1, found


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_numbers_that_are_no_times_are_refused(seconds: float) -> None:
    spec = read_spec(fixtures.small({"step_id": "a"}))

    bad = replace(spec, steps=(replace(spec.steps[0], timeout=seconds, backoff_seconds=seconds),))

    assert len(check_spec(bad)) == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"workflow_id": "a/b"}, "workflow_id 'a/b' may only have letters"),
        ({"inputs": {"a.b": "string"}}, "an input: name 'a.b' may only have"),
        ({"inputs": {"a": "text"}}, "input a: type must be one of string"),
        (
            {"inputs": {"a": {"type": "number", "default": "7"}}},
            "its default does not fit: Input a must be a number",
        ),
        ({"inputs": {"a": {"pattern": "(a+)+"}}}, "input a: the pattern '(a+)+' repeats a group"),
        ({"inputs": {"a": {"pattern": "("}}}, "is no regular expression"),
        ({"outputs": {"o": {"type": "string"}}}, "output o: source_reference must be"),
        ({"outputs": {"o": "a"}}, "output o: source_reference must be steps.<step_id>.<output_name>"),
        ({"outputs": {"o": "steps.b.output"}}, "output o: steps.b.output: there is no step b"),
        ({"outputs": {"o": "steps.a.other"}}, "step a has no output other"),
        ({"outputs": {"o": "inputs.x"}}, "there is no input x"),
        (
            {"outputs": {"o": {"type": "text", "source_reference": "steps.a.output"}}},
            "output o: type must be",
        ),
        ({"output": {}}, "there is no key 'output'; did you mean 'outputs'?"),
        ({"tools": {"t": {"type": "python"}}}, "tool t: a python tool that travels"),
        ({"tools": {"t": {"tool_id": "u"}}}, "tool t: its tool_id is 'u'"),
        ({"tools": {"t": {"timeout": -5}}}, "tool t: timeout must be between"),
        ({"tools": {"t": {"temperature": -1}}}, "tool t: temperature must not be negative, but is -1"),
        ({"tools": {"t" * 201: {}}}, "a tool needs a name of at most 200 characters"),
        ({"outputs": {"a b": "steps.a.output"}}, "an output: name 'a b' may only have"),
    ],
)
def test_what_is_wrong_with_a_workflow_is_said(more: dict[str, Any], said: str) -> None:
    found = check_spec(read_spec({**fixtures.small({"step_id": "a"}), **more}))

    assert len(found) == 1, found
    assert said in found[0]


def test_a_workflow_without_steps_cannot_run() -> None:
    assert check_spec(WorkflowSpec("w")) == ["the workflow needs at least one step"]


def test_names_must_be_unique() -> None:
    spec = replace(
        read_spec(fixtures.small({"step_id": "a"}, {"step_id": "a"})),
        inputs=(WorkflowInput("x"), WorkflowInput("x")),
    )

    assert check_spec(spec) == ["2 inputs are called 'x'", "2 steps are called 'a'"]


def test_a_circle_is_named_step_by_step_also_through_values() -> None:
    found = problems(
        {"step_id": "a", "depends_on": ["b"]},
        {"step_id": "b", "input_mapping": {"x": "steps.c.output"}},
        {"step_id": "c", "when": "steps.a.output == 1"},
        {"step_id": "d"},
    )

    assert found == ["steps wait for each other in a circle: a → b → c → a"]


def test_everything_is_collected() -> None:
    found = problems(
        {"step_id": "a", "depends_on": ["b", "ghost"], "timeout": -1},
        {"step_id": "b", "depends_on": ["a"], "input_mapping": {"x": "inputs.none"}},
        outputs={"o": "steps.none.output"},
    )

    assert len(found) == 5


@pytest.mark.soak
def test_a_flood_of_problems_is_cut() -> None:
    found = problems(*({"step_id": f"s{number}", "depends_on": ["g" * 9000]} for number in range(20_000)))

    assert len(found) == 101
    assert found[-1] == "and further problems"
    assert max(map(len, found)) == 500


def test_a_workflow_inside_a_step_is_checked_as_well() -> None:
    inner = fixtures.small({"step_id": "x", "depends_on": ["y"]}, inputs={"topic": "string", "n": "number"})

    found = problems(
        {
            "step_id": "outer",
            "type": "sub_workflow",
            "workflow_spec": inner,
            "input_mapping": {"n": "seven", "other": 1},
        }
    )

    assert found == [
        "step outer: its workflow has no input other (there is n, topic)",
        "step outer: its workflow needs the input topic",
        'step outer: Input n must be a number, not "seven"',
        "step outer: step x: depends on y, which does not exist (there is x)",
    ]


def test_workflows_lie_only_so_deep_inside_one_another() -> None:
    spec = read_spec(fixtures.small({"step_id": "a"}))
    for _ in range(10):
        spec = replace(spec, steps=(WorkflowStep("a", step_type="sub_workflow", workflow_spec=spec),))  # type: ignore[arg-type]

    assert any("at most 10 deep" in problem for problem in check_spec(spec))


def test_tools_are_looked_for_where_it_is_known_which_there_are() -> None:
    spec = read_spec(
        fixtures.small(
            {"step_id": "a", "tool": "ecko", "fallback_tool": "own"}, tools={"own": {"fallback_tool": "none"}}
        )
    )

    assert check_spec(spec) == []
    assert check_spec(spec, known_tools=["echo"]) == [
        "tool own: there is no tool none (there is echo, own)",
        "step a: there is no tool ecko (did you mean echo?)",
    ]


def test_a_tool_that_the_step_itself_brings_need_not_exist() -> None:
    spec = read_spec(
        fixtures.small(
            {
                "step_id": "a",
                "type": "python_tool",
                "tool": "new",
                "generate_tool": True,
                "description": "Do it",
            },
            {"step_id": "b", "type": "python_tool", "tool": "own", "tool_path": "own.py"},
        )
    )

    assert check_spec(spec, known_tools=[]) == []


def test_a_valid_workflow_is_let_through_and_a_bad_one_is_not() -> None:
    spec = read_spec(fixtures.portable())

    require_valid(spec)
    with pytest.raises(SpecError, match="at least one step"):
        require_valid(replace(spec, steps=(), outputs=()))


@pytest.mark.soak
def test_ten_thousand_steps_in_a_chain_are_checked_without_recursion() -> None:
    steps = [
        {"step_id": f"s{number}", "input_mapping": {"x": f"steps.s{number - 1}.output"} if number else {}}
        for number in range(10_000)
    ]

    assert problems(*steps) == []


def test_more_steps_than_anybody_runs_are_refused() -> None:
    step = WorkflowStep("a", tool_name="t")

    assert any("at most 100,000" in one for one in check_spec(WorkflowSpec("w", steps=(step,) * 100_001)))
