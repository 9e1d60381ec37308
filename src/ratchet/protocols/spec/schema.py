"""The published schema of specs. What it cannot say, such as that no steps wait for each other, is in `validation`."""

from __future__ import annotations

from typing import Any

MOST_STEPS = 1000
_LONGEST_PATH = 1024
_LONGEST_NAME = 200

_TABLE = {"type": "object"}
_NAME = {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME}
_PATH = {"type": "string", "minLength": 1, "maxLength": _LONGEST_PATH}
_MAYBE = {"type": ["string", "null"]}

_OUTPUTS = {
    "type": "object",
    "description": "Where the text of the session is written to. Never the path of a prompt, a plan or a step file.",
    "properties": {
        "protocol": {**_PATH, **_MAYBE},
        "aux": {"type": "object", "additionalProperties": _PATH},
    },
    "additionalProperties": False,
}

_QA = {
    "type": "object",
    "description": "How the step is judged; null is full.",
    "properties": {
        "policy": {"enum": ["skip", "light", "full", None]},
        "prompt": {**_PATH, **_MAYBE},
        "model": _MAYBE,
        "engine_id": _MAYBE,
        "inputs": _TABLE,
    },
    "required": ["policy"],
    "additionalProperties": False,
}

_STEP = {
    "type": "object",
    "properties": {
        "id": _NAME,
        "name": {**_NAME, **_MAYBE, "description": "What the step is called, if not by its id."},
        "description": _MAYBE,
        "engine_id": {**_MAYBE, "description": "The engine that carries it out; null is the usual one."},
        "model": _MAYBE,
        "prompt_ref": {
            **_PATH,
            "description": "The file with the task: in the folder of the protocol, else in the repository.",
        },
        "inputs": {**_TABLE, "description": "What the engine is told besides."},
        "outputs": _OUTPUTS,
        "step_type": {"enum": ["setup", "work", "qa", None]},
        "policies": {"type": "array", "items": _TABLE, "description": "Loops and triggers."},
        "qa": _QA,
        "order": {
            "type": ["integer", "null"],
            "description": "Steps are sorted by it. One without stays behind the step before it in the list.",
        },
        "metadata": _TABLE,
        "depends_on": {
            "type": "array",
            "items": _NAME,
            "description": "Names or ids of the steps that must be completed before; none means those just before it.",
        },
        "parallel_group": {
            **_NAME,
            **_MAYBE,
            "description": "Steps of one group may run at once. The group stands where its first step stands.",
        },
    },
    "required": ["id", "engine_id", "prompt_ref", "qa"],
    "additionalProperties": False,
}

SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "ProtocolSpec",
    "description": "The steps of a protocol, who carries them out and how they are judged.",
    "type": "object",
    "properties": {
        "version": {"type": ["string", "integer", "null"]},
        "steps": {
            "type": "array",
            "items": {"$ref": "#/definitions/StepSpec"},
            "minItems": 1,
            "maxItems": MOST_STEPS,
        },
        "placeholders": _TABLE,
        "template": _TABLE,
        "metadata": _TABLE,
    },
    "required": ["steps"],
    "additionalProperties": False,
    "definitions": {"StepSpec": _STEP},
}
