"""The prompts of the overseer. What people and tools say is in them as JSON: it is data and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ratchet.question import Tried

# The most characters of each part; what is longer is cut, or left out if it cannot be cut.
_MOST_TOOLS = 24_000
_MOST_LESSON = 600

TOOL_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "source": {"type": "string", "description": "a Python module that defines run(...)"},
        "input_schema": {"type": "object", "description": "JSON Schema of the inputs"},
        "output_schema": {"type": "object", "description": "JSON Schema of what run returns"},
        "examples": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"input": {"type": "object"}, "output": {}},
                "required": ["input", "output"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["source", "input_schema", "output_schema", "examples"],
    "additionalProperties": False,
}


CONFIRM_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "fits": {"type": "boolean", "description": "whether the plan does exactly what the request asks for"},
        "why": {"type": "string", "description": "in a sentence"},
    },
    "required": ["fits", "why"],
    "additionalProperties": False,
}


def confirm_prompt(sentence: str, before: str, plan: Mapping[str, Any]) -> str:
    """The question whether a plan that was made for another request does what this one asks for."""
    return "\n\n".join(
        [
            f"The request:\n\n{as_json(sentence)}",
            f"An earlier request:\n\n{as_json(before)}",
            f"The plan that was made for the earlier one:\n\n{as_json(plan)}",
            "Make no plan now. Say only whether this plan, as it is, does what the request asks for: all of it, "
            "nothing else, and not the opposite. If you are not sure, it does not fit.",
        ]
    )


@cache
def planner_rules() -> str:
    """How a plan is made."""
    return _text("planner.md")


@cache
def tool_writer_rules() -> str:
    """How a tool is written."""
    return _text("tool_writer.md")


def plan_prompt(
    sentence: str,
    tools: Iterable[Mapping[str, Any]],
    example: Mapping[str, Any] | None,
    lessons: Iterable[str],
    before: Tried | None,
) -> str:
    """The question for a plan. `before` is the one that cannot be used."""
    shown = _lines(tools, _MOST_TOOLS)
    parts = [
        f"The request:\n\n{as_json(sentence)}",
        f"Tools that may serve, one on each line:\n\n{shown}"
        if shown
        else "There is no tool that serves: use models, or have tools written.",
    ]
    if example is not None:
        shown = as_json(example)
        parts.append(f"A plan that was made for a similar request; keep of it what fits:\n\n{shown}")
    taught = "\n".join(f"- {as_json(each[:_MOST_LESSON])}" for each in lessons)
    if taught:
        parts.append(f"What earlier plans taught:\n\n{taught}")
    return "\n\n".join([*parts, *_repair(before, "plan")])


def tool_prompt(purpose: Mapping[str, Any], before: Tried | None) -> str:
    """The question for the source of a tool."""
    return "\n\n".join([f"The tool:\n\n{as_json(purpose)}", *_repair(before, "tool")])


def with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    """The question for an engine that knows no schemas."""
    wanted = "Answer with one JSON object that fits this JSON Schema, and with nothing else:"
    return f"{prompt}\n\n{wanted}\n\n{as_json(schema)}"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(name: str) -> str:
    return files("ratchet.workflows.overseer").joinpath(name).read_text(encoding="utf-8")


def _repair(before: Tried | None, what: str) -> list[str]:
    if before is None:
        return []
    listed = "\n".join(f"- {problem}" for problem in before.problems)
    parts = [f"Your last answer:\n\n{before.answer}"] if before.answer else []
    return [*parts, f"It cannot be used:\n\n{listed}\n\nGive the whole {what} again, corrected."]


def _lines(items: Iterable[Mapping[str, Any]], most: int) -> str:
    """As many of the items as fit, one on each line, the first ones first."""
    lines: list[str] = []
    for item in items:
        line = as_json(item)
        if sum(map(len, lines)) + len(line) <= most:
            lines.append(line)
    return "\n".join(lines)
