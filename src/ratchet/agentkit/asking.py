"""Asking a model through Ratchet's engines, so that an agent needs no key of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, overload

from ratchet.agentkit.architect import use
from ratchet.agentkit.blocking import finished
from ratchet.agentkit.errors import AnswerInvalid, Misused
from ratchet.agentkit.schema import first_fault

_SECONDS = 600.0


@overload
def ask(
    prompt: str,
    *,
    system: str | None = None,
    schema: None = None,
    model: str | None = None,
    seconds: float = ...,
) -> str: ...


@overload
def ask(
    prompt: str,
    *,
    system: str | None = None,
    schema: Mapping[str, Any],
    model: str | None = None,
    seconds: float = ...,
) -> Any: ...


def ask(
    prompt: str,
    *,
    system: str | None = None,
    schema: Mapping[str, Any] | None = None,
    model: str | None = None,
    seconds: float = _SECONDS,
) -> Any:
    """What a model answers: its text, or, with a JSON Schema, the value that fits it.

    Works in async code too, which it blocks until then. Raises `ArchitectUnreachable`, `ToolFailed` if no model
    could answer, and `AnswerInvalid` if the answer does not fit the schema.
    """
    if not prompt.strip():
        raise Misused("the prompt is empty")
    arguments = {
        "prompt": prompt,
        "system": system,
        "schema": None if schema is None else dict(schema),
        "model": model,
    }
    answer = finished(lambda: use("ask_llm", arguments, seconds=seconds)).structured_content
    if not isinstance(answer, dict):
        raise AnswerInvalid(f"the Architect answered {answer!r:.200}, not a text and an output")
    return _text(answer) if schema is None else _output(answer, schema)


def _text(answer: Mapping[str, Any]) -> str:
    text = answer.get("text")
    if not isinstance(text, str):
        raise AnswerInvalid(f"the answer has no text: {answer!r:.200}")
    return text


def _output(answer: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    if "output" not in answer:
        raise AnswerInvalid(f"the answer has no output: {answer!r:.200}")
    output = answer["output"]
    fault = first_fault(output, json.dumps(schema).encode())
    if fault is not None:
        where, why = fault
        raise AnswerInvalid(
            f"answer{where} does not fit the schema: {why}", hint="ask again, or more plainly"
        )
    return output
