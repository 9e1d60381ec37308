"""The format of workflows as JSON Schema: the whole of it, and the plain part that a model is asked to answer in."""

from __future__ import annotations

from typing import Any

from .errors import SpecError
from .inputs import TYPES
from .reader import read_spec, shown
from .spec import NAME, WORKFLOW_ID, AtLimit, OperationType, StepType, WorkflowSpec

__all__ = ["plan_schema", "read_plan", "workflow_schema"]

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_TEXT_OR_TEXTS: Schema = {"anyOf": [_TEXT, _TEXTS]}
_FLAG: Schema = {"type": "boolean"}
_NAME: Schema = {"type": "string", "pattern": f"^{NAME.pattern}$"}
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


def workflow_schema() -> Schema:
    """The JSON Schema of a workflow file. Further keys are allowed everywhere and kept."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Workflow",
        "description": "A workflow: inputs, steps that pass values to one another, and outputs.",
        "$ref": "#/$defs/workflow",
        "$defs": {
            "workflow": _workflow(),
            "input": _input(),
            "output": _output(),
            "step": _step(),
            "tool": _tool(),
        },
    }


def _workflow() -> Schema:
    return {
        "type": "object",
        "required": ["steps"],
        "properties": {
            "workflow_id": {"type": "string", "pattern": f"^{WORKFLOW_ID.pattern}$"},
            "version": _nullable(_TEXT),
            "description": _nullable(_TEXT),
            "created_by": _nullable(_TEXT),
            "created_at": _nullable(_TEXT),
            "tags": _nullable(_TEXT_OR_TEXTS),
            "portable": _nullable(_FLAG, "whether the workflow carries its tools with it, under `tools`"),
            "inputs": _nullable(_named("#/$defs/input")),
            "outputs": _nullable(_named("#/$defs/output")),
            "steps": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}},
            "tools": _nullable(_named("#/$defs/tool", name="tool_id")),
            "dependencies": _nullable(
                {
                    "type": "object",
                    "properties": {
                        "llm_tools": _nullable(_TEXT_OR_TEXTS),
                        "python_tools": _nullable(_TEXT_OR_TEXTS),
                        "pip_packages": _nullable({"type": "array", "items": _package()}),
                    },
                }
            ),
        },
    }


def _input() -> Schema:
    return {
        "type": "object",
        "properties": {
            "type": {"enum": [*TYPES, None], "description": "`string`, if not given"},
            "required": _nullable(_FLAG, "true, if not given; a default counts as given"),
            "default": {},
            "description": _nullable(_TEXT),
            "enum": {"type": "array"},
            "pattern": {"type": "string", "description": "a regular expression that occurs in the text"},
        },
    }


def _output() -> Schema:
    return {
        "type": "object",
        "required": ["source_reference"],
        "properties": {
            "type": {"enum": [*TYPES, "", None]},
            "description": _nullable(_TEXT),
            "source_reference": {"type": "string", "minLength": 1},
        },
    }


def _step() -> Schema:
    return {
        "type": "object",
        "required": ["step_id"],
        "properties": {
            "step_id": _NAME,
            "type": {"enum": [*map(str, StepType), None], "description": "`llm_call`, if not given"},
            "description": _nullable(_TEXT),
            "tool": _nullable(_TEXT),
            "prompt_template": _nullable(_TEXT, "`{name}` stands for an input, `${…}` for a reference"),
            "tool_path": _nullable(_TEXT),
            "generate_tool": _nullable(_FLAG),
            "operation_type": {"enum": [*map(str, OperationType), None]},
            "workflow_path": _nullable(_TEXT),
            "workflow_spec": _nullable({"$ref": "#/$defs/workflow"}),
            "input_mapping": _nullable(
                {"anyOf": [{"type": "object"}, {"type": "array", "items": _pair({})}]},
                "values: inputs.<name>, steps.<step_id>.<output_name>, ${…} inside a text, or a literal",
            ),
            "output_name": _nullable(_NAME),
            "timeout": _nullable({"type": "number", "exclusiveMinimum": 0}, "seconds; 300, if not given"),
            "retry_on_failure": _nullable(_FLAG),
            "max_retries": _nullable({"type": "integer", "minimum": 0, "maximum": 100}),
            "parallel_group": {"type": ["integer", "string", "null"]},
            "depends_on": _nullable(_TEXT_OR_TEXTS),
            "when": _nullable(_TEXT, "run only if this condition holds"),
            "for_each": {
                "anyOf": [{"type": "array"}, _TEXT, {"type": "null"}],
                "description": "run once for each `item` of this list",
            },
            "repeat": _nullable(
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["until", "limit"],
                    "properties": {
                        "until": {"type": "string", "description": "a condition on `last`, its newest value"},
                        "limit": {"type": "integer", "minimum": 1, "maximum": 10_000},
                        "start": {"description": "what `last` is in the first round; null, if not given"},
                        "pause_seconds": _nullable({"type": "number", "minimum": 0, "maximum": 3600}),
                        "at_limit": {"enum": [*map(str, AtLimit), None]},
                    },
                },
                "run again until a condition holds, at most so often",
            ),
            "fallback_tool": _nullable(_TEXT),
            "backoff_seconds": _nullable({"type": "number", "minimum": 0, "maximum": 3600}),
            "backoff_factor": _nullable({"type": "number", "minimum": 1, "maximum": 100}),
            "backoff_most": _nullable({"type": "number", "minimum": 0, "maximum": 3600}),
            "backoff_jitter": _nullable({"type": "number", "minimum": 0, "maximum": 1}),
            "secrets": _nullable(_TEXT_OR_TEXTS, "names of variables that the file at `tool_path` is given"),
            "answer_schema": _nullable({"type": "object"}, "what a person answers to an approval"),
            "cache": _nullable(
                _FLAG,
                "whether an earlier result may be used again; models: only if true, or at temperature 0",
            ),
            "stream": _nullable(_FLAG, "pass its lines on as they come to a step with `for_each`"),
        },
    }


def _tool() -> Schema:
    return {
        "type": "object",
        "properties": {
            "tool_id": _TEXT,
            "name": _nullable(_TEXT),
            "description": _nullable(_TEXT),
            "type": _nullable(_TEXT, "`llm`, `python`, `api` or `executable`"),
            "model": _nullable(_TEXT),
            "system_prompt": _nullable(_TEXT),
            "temperature": _nullable({"type": "number", "minimum": 0}),
            "endpoint": _nullable(_TEXT),
            "source_code": _nullable(_TEXT),
            "requirements": _nullable(_TEXT_OR_TEXTS),
            "api_spec": _nullable({"type": "object"}),
            "retry_on_failure": _nullable(_FLAG),
            "timeout": _nullable({"type": "number", "exclusiveMinimum": 0}),
            "fallback_tool": _nullable(_TEXT),
        },
    }


def _package() -> Schema:
    described = {"type": "object", "required": ["name"], "properties": {"name": _TEXT, "version": _TEXT}}
    return {"anyOf": [_TEXT, described]}


def _named(item: str, *, name: str = "name") -> Schema:
    """Things by their names: an object, or a list of things that say their names."""
    short = {"anyOf": [{"$ref": item}, _TEXT]}
    in_list = {"allOf": [{"$ref": item}, {"required": [name]}]}
    by_name = {"type": "object", "additionalProperties": short}
    return {"anyOf": [by_name, {"type": "array", "items": in_list}]}


def _nullable(schema: Schema, description: str | None = None) -> Schema:
    """The same or null, which says the same as no such key."""
    either = {"anyOf": [schema, {"type": "null"}]}
    return either if description is None else {**either, "description": description}


def _pair(value: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "value"],
        "properties": {"name": _TEXT, "value": value},
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
        steps=_list(_planned_step()),
    )


def read_plan(data: Any) -> WorkflowSpec:
    """The workflow that a plan says. Raises `SpecError` with everything that cannot be read."""
    if not isinstance(data, dict):
        raise SpecError([f"a plan is a JSON object, not {shown(data)}"])
    return read_spec(data)


def _planned_step() -> Schema:
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
