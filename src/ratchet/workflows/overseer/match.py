"""A workflow without a model: the tool that fits a sentence, in one step, and what the sentence says of its inputs."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.flowkit.inputs import TYPES
from ratchet.flowkit.spec import StepType, WorkflowInput, WorkflowOutput, WorkflowSpec, WorkflowStep
from ratchet.runtime import Runtime
from ratchet.tools.definition import Tool
from ratchet.tools.registry import open_toolbox
from ratchet.tools.search import ToolChoice

_LOOKED_AT = 8
# How much fitter than the next one a tool must be to be taken without a question.
_CLEAR = 15.0
# What is less like the sentence is asked about, however good it is in general.
_ALIKE = 0.25
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\w)")
_QUOTED = re.compile(r'"([^"]*)"|“([^”]*)”|(?<!\w)\'([^\']*)\'(?!\w)')
_WORD = re.compile(r"[^\W\d_]+")
_KEPT = ("enum", "pattern", "minimum", "maximum", "items")


@dataclass(frozen=True, slots=True)
class MatchedTool:
    """A tool as a workflow of one step. `clear` says that no other one is nearly as fit."""

    spec: WorkflowSpec
    tool: Tool
    why: str
    clear: bool


def match_tools(runtime: Runtime, sentence: str, limit: int = 3) -> list[MatchedTool]:
    """The tools that fit a sentence and ask no model, the fittest first."""
    with contextlib.closing(open_toolbox(runtime.ledger, runtime.settings, runtime.home)) as toolbox:
        found = toolbox.search(sentence, _LOOKED_AT)
    fit = [each for each in found if _asks_no_model(each.tool)]
    return [
        MatchedTool(one_step(each.tool), each.tool, each.why, _is_clear(each, found)) for each in fit[:limit]
    ]


def one_step(tool: Tool) -> WorkflowSpec:
    """The workflow that calls a tool once. It takes what the tool must have, and what it has a default for."""
    inputs = tuple(_inputs(tool.input_schema or {}))
    step = WorkflowStep(
        step_id=tool.id,
        step_type=StepType.EXISTING_TOOL,
        description=tool.description,
        tool_name=tool.id,
        input_mapping={each.name: f"inputs.{each.name}" for each in inputs},
    )
    output = WorkflowOutput(name="result", source_reference=f"steps.{tool.id}.output")
    return WorkflowSpec(
        workflow_id=tool.id, description=tool.description, inputs=inputs, outputs=(output,), steps=(step,)
    )


def guess_inputs(inputs: Iterable[WorkflowInput], sentence: str) -> dict[str, Any]:
    """What a sentence seems to say of the inputs: its numbers and quoted texts in their order, and the choice that it
    names. A person confirms it; nothing is guessed for what it does not name."""
    numbers = [_number(each) for each in _NUMBER.findall(sentence)]
    texts = _texts(sentence)
    found: dict[str, Any] = {}
    for each in inputs:
        choices = each.extra.get("enum")
        if isinstance(choices, list):
            named = _named([choice for choice in choices if isinstance(choice, str)], sentence)
            if named is not None:
                found[each.name] = named
        elif each.default is not None:
            continue
        elif each.type in ("number", "integer") and numbers:
            if each.type == "number" or isinstance(numbers[0], int):
                found[each.name] = numbers.pop(0)
        elif each.type == "string" and texts:
            found[each.name] = texts.pop(0)
    return found


def _asks_no_model(tool: Tool) -> bool:
    return tool.llm is None and tool.workflow is None


def _is_clear(choice: ToolChoice, found: list[ToolChoice]) -> bool:
    """Whether it is the fittest of all, models among them, and by far."""
    others = [each.fitness for each in found if each is not choice]
    return choice.likeness >= _ALIKE and choice.fitness - max(others, default=0.0) >= _CLEAR


def _inputs(schema: Mapping[str, Any]) -> Iterable[WorkflowInput]:
    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    for name, about in (properties if isinstance(properties, Mapping) else {}).items():
        if not isinstance(about, Mapping) or (name not in needed and "default" not in about):
            continue
        yield WorkflowInput(
            name=name,
            type=_type(about),
            required=name in needed,
            default=about.get("default"),
            description=str(about.get("description", "")),
            extra={key: about[key] for key in _KEPT if key in about},
        )


def _type(about: Mapping[str, Any]) -> str:
    declared = about.get("type")
    if declared in TYPES:
        return str(declared)
    choices = about.get("enum")
    texts = isinstance(choices, list) and all(isinstance(each, str) for each in choices)
    return "string" if declared is None and texts else "object" if "properties" in about else "string"


def _number(text: str) -> int | float:
    value = json.loads(text)
    return value if isinstance(value, int | float) else 0


def _texts(sentence: str) -> list[str]:
    quoted = ["".join(each) for each in _QUOTED.findall(sentence)]
    if quoted:
        return quoted
    _, colon, rest = sentence.partition(": ")
    return [rest.strip()] if colon and rest.strip() else []


def _named(choices: list[str], sentence: str) -> str | None:
    """The one choice whose parts begin words of the sentence, in their order; of several that with most letters."""
    words = [word.casefold() for word in _WORD.findall(sentence)]
    scored = sorted(((_letters(choice, words), choice) for choice in choices), reverse=True)
    if not scored or scored[0][0] == 0 or (len(scored) > 1 and scored[1][0] == scored[0][0]):
        return None
    return scored[0][1]


def _letters(choice: str, words: list[str]) -> int:
    left = iter(words)
    parts = [part.casefold() for part in _WORD.findall(choice)]
    return sum(map(len, parts)) if all(any(word.startswith(part) for word in left) for part in parts) else 0
