"""The way to the Architect, who can change the agent itself, and through it to a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from ratchet.agentkit.client import Lost, McpAddress, call, connected, finished
from ratchet.agentkit.errors import AnswerInvalid, ArchitectUnreachable, Misused
from ratchet.agentkit.logs import URL, surroundings
from ratchet.agentkit.store import first_fault

if TYPE_CHECKING:
    from mcp.types import CallToolResult


_ANSWER_SECONDS = 600.0


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
    seconds: float = _ANSWER_SECONDS,
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


Severity = Literal["low", "normal", "high", "critical"]

_SEVERITIES = ("low", "normal", "high", "critical")
_SECONDS = 60.0
_PAUSES = (0.2, 0.5, 1.0)


def send_to_architect(message: str, severity: Severity = "normal") -> int:
    """Tell the Architect what should be better about this agent; returns the number under which it has the remark.

    Returns as soon as the Architect has taken the message, long before anything has changed: remarks are collected,
    the same words are counted, and one change is made for all of them. Works in async code too. Raises
    `ArchitectUnreachable`, and `ToolFailed` if the Architect refuses the message.
    """
    if not message.strip():
        raise Misused("the message to the Architect is empty")
    if severity not in _SEVERITIES:
        raise Misused(f"{severity!r} is no severity", hint=f"it is one of {', '.join(_SEVERITIES)}")
    answer = finished(
        lambda: use("send_feedback", {"message": message, "severity": severity}, seconds=_SECONDS)
    )
    said = answer.structured_content
    number = said.get("feedback_id") if isinstance(said, dict) else None
    if type(number) is not int:
        raise AnswerInvalid(f"the Architect took the message and answered {said!r:.200}, not its number")
    return number


async def use(tool: str, arguments: Mapping[str, Any], *, seconds: float) -> CallToolResult:
    """The answer of one of the Architect's tools.

    Tried again, a few times, only while it has not answered at all: then it cannot have taken anything. Raises
    `ArchitectUnreachable` and `ToolFailed`.
    """
    import asyncio

    address = _address()
    for pause in (*_PAUSES, None):
        try:
            async with connected(address, seconds) as client:
                return await call(client, tool, arguments)
        except Lost as lost:
            if lost.spoken:
                raise ArchitectUnreachable(
                    f"the Architect was lost while it was asked: {lost}",
                    hint="it may have taken the message: look before you send it again",
                    taken=None,
                ) from lost
            if pause is None:
                raise ArchitectUnreachable(
                    f"the Architect cannot be reached at {address.url}: {lost}",
                    hint="nothing was taken: keep the message and send it later",
                ) from lost
            await asyncio.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _address() -> McpAddress:
    told = surroundings()
    if told.url is None:
        raise ArchitectUnreachable(
            f"{URL} is not set: Ratchet has not started this process", hint="run the agent with Ratchet"
        )
    return McpAddress(f"{told.url}/architect/mcp", told.token)
