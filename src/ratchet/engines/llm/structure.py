"""Structured answers: asked for in a way that the model knows, and found in what it said."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ratchet.engines.llm.choice import Candidate

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters

_NAME = "answer"
_DESCRIPTION = "Give the final answer."

Way = Literal["native", "tool", "prompt"]


def way_for(candidate: Candidate, model: Model, schema: Mapping[str, Any]) -> Way:
    """How `model` is told the schema."""
    wanted = candidate.endpoint.structured
    # Protocols and tools know objects only; any other value is asked for in words.
    if schema.get("type") != "object":
        return "prompt"
    if wanted != "auto":
        return wanted
    if model.profile.get("supports_json_schema_output"):
        return "native"
    return "tool" if model.profile.get("supports_tools", True) else "prompt"


def with_schema(
    parameters: ModelRequestParameters, schema: Mapping[str, Any], way: Way
) -> ModelRequestParameters:
    """`parameters` that also ask for an answer that fits `schema`."""
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    # The library rewrites what it is given.
    own = copy.deepcopy(dict(schema))
    if way == "native":
        return dataclasses.replace(
            parameters,
            output_mode="native",
            output_object=OutputObjectDefinition(json_schema=own, name=_NAME),
            allow_text_output=False,
        )
    if way == "tool":
        tool = ToolDefinition(
            name=_NAME, description=_DESCRIPTION, parameters_json_schema=own, kind="output", strict=False
        )
        return dataclasses.replace(
            parameters, output_mode="tool", output_tools=[tool], allow_text_output=False
        )
    told = InstructionPart(content=instruction(schema))
    return dataclasses.replace(parameters, instruction_parts=[*(parameters.instruction_parts or []), told])


def instruction(schema: Mapping[str, Any]) -> str:
    return (
        "Give your final answer as one JSON value and nothing else: no other words before or after it. "
        f"It must fit this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )


def as_text(response: ModelResponse) -> ModelResponse:
    """`response` with an answer that came as a tool call put into words.

    A call that nobody answers is an error in most protocols, and a tool that the next model does not have in some.
    Other calls beside the answer are dropped: the model is done.
    """
    from pydantic_ai.messages import TextPart, ToolCallPart

    answers = [each for each in response.tool_calls if each.tool_name == _NAME]
    if not answers:
        return response
    kept = [part for part in response.parts if not isinstance(part, ToolCallPart | TextPart)]
    return dataclasses.replace(response, parts=[*kept, TextPart(content=answers[0].args_as_json_str())])


def sent_back(problem: str) -> str:
    """What the model is told about an answer that is not as asked."""
    return f"{problem}\nGive the whole answer again, corrected."
