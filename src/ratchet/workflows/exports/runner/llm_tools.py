"""Steps that ask a model."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.execution import Result, StepCall
from ratchet.flowkit.spec import ToolDefinition
from ratchet.flowkit.templates import prompt_of

from .asking import ask, ask_for_json
from .endpoints import Question, endpoint_of


async def call_model(
    call: StepCall, tool: ToolDefinition | None, models: Mapping[str, str], seconds: float
) -> Result:
    """What the model says to the prompt of the step, or to that of the tool. Raises `StepFailed`."""
    began = time.monotonic()
    body: Mapping[str, Any] = {} if tool is None else tool.extra.get("llm", {})
    name = model_name(body)
    if name not in models:
        raise StepFailed(f"nobody has said which model answers for {name or 'the default'!r}", final=True)
    provider, _, model = models[name].partition("/")
    prompt = call.prompt
    if prompt is None:
        prompt = (
            call.step.description if tool is None else prompt_of(body.get("prompt_template"), call.values)
        )
    question = Question(
        model,
        prompt,
        body.get("system_prompt"),
        body.get("temperature"),
        None if tool is None else tool.extra.get("output_schema"),
        body.get("max_tokens"),
    )
    endpoint = endpoint_of(provider, os.environ)
    value: Any
    if question.schema is None:
        answer = await ask(endpoint, question, seconds)
        value, tokens = answer.text, answer.tokens
    else:
        value, tokens = await ask_for_json(endpoint, question, seconds)
    return Result(value, {"wall_ms": (time.monotonic() - began) * 1000, "tokens": tokens})


def model_name(body: Mapping[str, Any]) -> str:
    """By what name the table of models knows whom a tool asks; nothing is the default."""
    return body.get("model") or ".".join(filter(None, (body.get("role"), body.get("tier"))))
