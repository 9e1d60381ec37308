"""The plain form in which a model is asked for a workflow, and reading what it answers.

Structured output wants objects whose keys are all known and all there. So whatever has names is a list here, what is
not wanted is null, and a value is a text, a number, a boolean or a list of texts.
"""

from __future__ import annotations

from typing import Any

from .errors import SpecError
from .fields import shown
from .inputs import TYPES
from .reading import read_spec
from .spec import OperationType, StepType, WorkflowSpec

Schema = dict[str, Any]

_STEP_TYPES = (StepType.LLM_CALL, StepType.PYTHON_TOOL, StepType.EXISTING_TOOL, StepType.APPROVAL)
_VALUE: Schema = {
    "anyOf": [
        {"type": "string"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "null"},
    ]
}


def plan_schema() -> Schema:
    """The JSON Schema of a plan: every key is required and no other one is allowed, at every level."""
    return _object(
        workflow_id=_text("a short name: letters, digits and _"),
        description=_text("what the workflow does, in one sentence"),
        inputs=_list(
            _object(
                name=_text("letters, digits and _"),
                type=_one_of(TYPES),
                required={"type": "boolean"},
                default={**_VALUE, "description": "the value if none is given, or null"},
                description=_text(),
            )
        ),
        outputs=_list(
            _object(
                name=_text("letters, digits and _"),
                type=_one_of(TYPES),
                source_reference=_text("steps.<step_id>.<output_name>"),
                description=_text(),
            )
        ),
        steps=_list(_step()),
    )


def read_plan(data: Any) -> WorkflowSpec:
    """The workflow that a plan says. Raises `SpecError` with everything that cannot be read."""
    if not isinstance(data, dict):
        raise SpecError([f"a plan is a JSON object, not {shown(data)}"])
    return read_spec(data)


def _step() -> Schema:
    return _object(
        step_id=_text("unique; letters, digits and _"),
        type=_one_of(_STEP_TYPES),
        description=_text("what the step does"),
        tool=_maybe(_text("the tool that is called, for existing_tool and python_tool")),
        prompt_template=_maybe(
            _text("the prompt of an llm_call or the question of an approval; {name} is an input of the step")
        ),
        generate_tool={"type": "boolean", "description": "whether a python_tool is yet to be written"},
        operation_type=_maybe(_one_of(tuple(OperationType))),
        input_mapping=_list(
            _object(
                name=_text(),
                value={
                    **_VALUE,
                    "description": "inputs.<name>, steps.<step_id>.<output_name>, item (with for_each), or a literal",
                },
            )
        ),
        output_name=_text("what the result is called"),
        depends_on=_list(_text("a step that must end first although nothing of it is used")),
        when=_maybe(_text("a condition such as steps.check.output.score >= 0.5")),
        for_each=_maybe(
            {
                "anyOf": [
                    _text("a reference to a list"),
                    _list(_text()),
                ]
            }
        ),
    )


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _text(description: str | None = None) -> Schema:
    return {"type": "string"} if description is None else {"type": "string", "description": description}


def _one_of(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": [str(value) for value in values]}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}
