"""The published schema says what reading and validation say; the plan schema is plain enough for any model."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.schema import plan_schema, read_plan, workflow_schema
from ratchet.flowkit.spec import StepType, WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.flowkit.writer import write_spec

from . import fixtures
from .strategies import valid_specs

WORKFLOW = Draft202012Validator(workflow_schema())
PLAN = Draft202012Validator(plan_schema())


def test_the_schemas_are_schemas() -> None:
    Draft202012Validator.check_schema(workflow_schema())
    Draft202012Validator.check_schema(plan_schema())


@pytest.mark.parametrize("form", [fixtures.portable, fixtures.braced, fixtures.old, fixtures.overseer])
def test_the_forms_that_are_around_fit_the_schema(form: Callable[[], dict[str, Any]]) -> None:
    WORKFLOW.validate(form())
    WORKFLOW.validate(write_spec(read_spec(form())))


@pytest.mark.soak
@settings(max_examples=50)
@given(valid_specs())
def test_every_valid_workflow_that_is_written_fits_the_schema(spec: WorkflowSpec) -> None:
    assert check_spec(spec) == []
    WORKFLOW.validate(write_spec(spec))


def test_the_short_forms_fit_the_schema() -> None:
    WORKFLOW.validate(
        fixtures.small(
            {
                "step_id": "a",
                "depends_on": "b",
                "input_mapping": [{"name": "x", "value": 1}],
                "when": "1 == 1",
            },
            {"step_id": "b", "for_each": ["x"], "cache": False},
            inputs=[{"name": "topic"}],
            outputs={"o": "steps.a.output"},
            tags="one",
        )
    )


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"workflow_id": "w", "steps": []},
        {"workflow_id": "w", "steps": {}},
        {"workflow_id": "a/b", "steps": [{"step_id": "a"}]},
        fixtures.small({"step_id": "a", "type": "bogus"}),
        fixtures.small({"step_id": "a b"}),
        fixtures.small({"description": "no id"}),
        fixtures.small({"step_id": "a", "timeout": 0}),
        fixtures.small({"step_id": "a", "timeout": "60"}),
        fixtures.small({"step_id": "a", "max_retries": -1}),
        fixtures.small({"step_id": "a", "depends_on": [1]}),
        fixtures.small({"step_id": "a", "operation_type": "melter"}),
        fixtures.small({"step_id": "a", "input_mapping": ["x"]}),
        fixtures.small({"step_id": "a", "workflow_spec": {"steps": []}}),
        fixtures.small({"step_id": "a"}, inputs={"x": {"type": "text"}}),
        fixtures.small({"step_id": "a"}, inputs=[{"type": "string"}]),
        fixtures.small({"step_id": "a"}, outputs={"o": {"type": "string"}}),
        fixtures.small({"step_id": "a"}, portable="yes"),
    ],
)
def test_a_broken_workflow_fits_neither_the_schema_nor_the_checks(broken: dict[str, Any]) -> None:
    assert not WORKFLOW.is_valid(broken)
    with pytest.raises(SpecError):
        _checked(broken)


def plan() -> dict[str, Any]:
    step = {
        "description": "",
        "tool": None,
        "prompt_template": None,
        "generate_tool": False,
        "operation_type": None,
        "input_mapping": [],
        "output_name": "output",
        "depends_on": [],
        "when": None,
        "for_each": None,
    }
    return {
        "workflow_id": "letters",
        "description": "Write letters",
        "inputs": [
            {"name": "names", "type": "array", "required": True, "default": None, "description": "to whom"},
            {"name": "tone", "type": "string", "required": False, "default": "kind", "description": ""},
        ],
        "outputs": [
            {"name": "letters", "type": "array", "source_reference": "steps.write.letter", "description": ""}
        ],
        "steps": [
            {
                **step,
                "step_id": "write",
                "type": "llm_call",
                "prompt_template": "A {tone} letter to {name}",
                "input_mapping": [
                    {"name": "name", "value": "item"},
                    {"name": "tone", "value": "inputs.tone"},
                    {"name": "words", "value": 100},
                ],
                "output_name": "letter",
                "for_each": "inputs.names",
                "operation_type": "generator",
            },
            {
                **step,
                "step_id": "ask",
                "type": "approval",
                "prompt_template": "Send them?",
                "depends_on": ["write"],
                "when": "len(inputs.names) > 0",
            },
        ],
    }


def test_a_plan_becomes_a_workflow() -> None:
    PLAN.validate(plan())

    spec = read_plan(plan())

    assert check_spec(spec) == []
    write, ask = spec.steps
    assert write.input_mapping == {"name": "item", "tone": "inputs.tone", "words": 100}
    assert write.for_each == "inputs.names"
    assert ask.step_type is StepType.APPROVAL
    assert ask.when == "len(inputs.names) > 0"
    assert ask.tool_name is None


def test_every_object_of_the_plan_schema_has_only_known_keys_and_all_of_them() -> None:
    for schema in _objects(plan_schema()):
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])


def test_a_plan_that_is_no_object_is_refused() -> None:
    with pytest.raises(SpecError, match="a plan is a JSON object, not a list"):
        read_plan([])


def _checked(data: dict[str, Any]) -> None:
    problems = check_spec(read_spec(data))
    if problems:
        raise SpecError(problems)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from _objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _objects(inner)
