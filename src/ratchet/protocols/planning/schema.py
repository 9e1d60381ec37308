"""The form of a plan as an engine answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_STEP_FILE: Schema = {
    "type": "object",
    "properties": {
        "filename": {
            "type": "string",
            "description": "NN-short-name.md: two digits, then small letters, digits, dashes",
        },
        "content": {"type": "string", "description": "the whole step file, as Markdown"},
        "title": {"type": ["string", "null"], "description": "what the step does, in a few words"},
        "depends_on": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "file names of the steps that must be completed before; null: those just before it",
        },
        "parallel_group": {
            "type": ["string", "null"],
            "description": "steps of one group may run at the same time; null: it runs alone",
        },
        "step_type": {"type": ["string", "null"], "enum": ["setup", "work", "qa", None]},
        "qa": {
            "type": ["string", "null"],
            "enum": ["full", "light", "skip", None],
            "description": "how the step is reviewed; null: full",
        },
        "engine": {"type": ["string", "null"], "description": "who carries it out; null: the usual one"},
        "needs_decomposition": {
            "type": ["boolean", "null"],
            "description": "whether it is to be taken apart into smaller tasks; null: its length decides",
        },
    },
    "required": ["filename", "content"],
    "additionalProperties": False,
}

_CLARIFICATION: Schema = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "a short name: small letters, digits and dashes"},
        "question": {"type": "string"},
        "options": {"type": ["array", "null"], "items": {"type": "string"}},
        "recommended": {"type": ["string", "null"]},
        "blocking": {
            "type": ["boolean", "null"],
            "description": "whether no step may run before it is answered",
        },
    },
    "required": ["key", "question"],
    "additionalProperties": False,
}

PLAN_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "plan_md": {"type": "string", "description": "the contract, as Markdown"},
        "context_md": {
            "type": "string",
            "description": "what whoever carries out a step must know, as Markdown",
        },
        "log_md": {"type": "string", "description": "the beginning of the log, as Markdown"},
        "step_files": {"type": "array", "items": _STEP_FILE},
        "clarifications": {
            "type": ["array", "null"],
            "items": _CLARIFICATION,
            "description": "questions to people that the repository does not answer",
        },
    },
    "required": ["plan_md", "context_md", "log_md", "step_files"],
    "additionalProperties": False,
}

STEP_SCHEMA: Schema = {
    "type": "object",
    "properties": {"content": {"type": "string", "description": "the whole step file, as Markdown"}},
    "required": ["content"],
    "additionalProperties": False,
}


def with_every_key(schema: Mapping[str, Any]) -> Schema:
    """The same form for engines whose structured output wants every key there: what may be left out is null then."""
    told = dict(schema)
    if "properties" in told:
        told["properties"] = {name: with_every_key(each) for name, each in told["properties"].items()}
        told["required"] = list(told["properties"])
    if "items" in told:
        told["items"] = with_every_key(told["items"])
    return told
