"""OpenAI Responses: what the Codex CLI speaks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ratchet.modelserver.turn import (
    ChatMessage,
    Document,
    ScriptedAnswer,
    ScriptedCall,
    Speaker,
    Tokens,
    objects,
    openai_error,
    pieces,
    sse,
    text_of,
)

_SPEAKERS: Mapping[str, Speaker] = {"user": "user", "assistant": "assistant"}
_DELTAS = {
    "output_text": "response.output_text",
    "refusal": "response.refusal",
    "function_call": "response.function_call_arguments",
    "custom_tool_call": "response.custom_tool_call_input",
}


class Responses:
    """`POST /v1/responses`"""

    def messages(self, body: Mapping[str, Any]) -> list[ChatMessage]:
        given = body.get("input")
        if isinstance(given, str):
            return [ChatMessage("user", given)]
        return [_message(item) for item in objects(given)]

    def tools(self, body: Mapping[str, Any]) -> list[str]:
        # Some models are told their tools in the conversation.
        items = [item for item in objects(body.get("input")) if item.get("type") == "additional_tools"]
        return [name for each in (body, *items) for name in _tool_names(each.get("tools"))]

    def document(self, answer: ScriptedAnswer) -> Document:
        return _response(answer, _status(answer), _items(answer))

    def events(self, answer: ScriptedAnswer) -> Iterator[bytes]:
        numbers = itertools.count()
        for event in self._documents(answer):
            yield sse({**event, "sequence_number": next(numbers)}, event["type"])

    def error(self, status: int, code: str | None, message: str | None) -> Document:
        return openai_error(status, code, message)

    def _documents(self, answer: ScriptedAnswer) -> Iterator[Document]:
        yield {"type": "response.created", "response": _response(answer, "in_progress", [])}
        yield {"type": "response.in_progress", "response": _response(answer, "in_progress", [])}
        for index, item in enumerate(_items(answer)):
            yield from _item_events(index, item)
        status = "failed" if answer.failed_in_stream else _status(answer)
        yield {"type": f"response.{status}", "response": _response(answer, status, _items(answer))}


def _response(answer: ScriptedAnswer, status: str, output: list[Document]) -> Document:
    turn = answer.turn
    ended = status != "in_progress"
    error = {"code": turn.error_code, "message": turn.error_message or f"scripted failure: {turn.error_code}"}
    return {
        "id": answer.id,
        "object": "response",
        "created_at": answer.at,
        "status": status,
        "error": error if status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(turn.usage) if ended and turn.usage else None,
    }


def _usage(tokens: Tokens) -> Document:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def _status(answer: ScriptedAnswer) -> str:
    return "incomplete" if answer.turn.ended == "length" else "completed"


def _items(answer: ScriptedAnswer) -> list[Document]:
    turn, items = answer.turn, list[Document]()
    if turn.thinking is not None:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        items.append({"id": f"{answer.id}-thinking", "type": "reasoning", "summary": summary})
    if turn.text is not None:
        part = (
            {"type": "refusal", "refusal": turn.text}
            if turn.ended == "refused"
            else {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        )
        items.append(
            {
                "id": f"{answer.id}-message",
                "type": "message",
                "role": "assistant",
                "status": _status(answer),
                "content": [part],
            }
        )
    return items + [_call(each, answer.call_id(index)) for index, each in enumerate(turn.calls)]


def _call(call: ScriptedCall, call_id: str) -> Document:
    item = {"id": f"{call_id}-item", "call_id": call_id, "name": call.name, "status": "completed"}
    if call.namespace is not None:
        item["namespace"] = call.namespace
    if call.custom:
        return {**item, "type": "custom_tool_call", "input": call.text}
    return {**item, "type": "function_call", "arguments": call.text}


def _item_events(index: int, item: Document) -> Iterator[Document]:
    """An item from empty to done, as the real service streams it."""
    place = {"item_id": item["id"], "output_index": index}
    match item:
        case {"type": "message", "content": [part]}:
            field = "refusal" if part["type"] == "refusal" else "text"
            empty = {**part, field: ""}
            inside = {**place, "content_index": 0}
            yield _added(index, {**item, "content": [], "status": "in_progress"})
            yield {"type": "response.content_part.added", **inside, "part": empty}
            extra: Document = {"logprobs": []} if field == "text" else {}
            yield from _deltas(_DELTAS[part["type"]], {**inside, **extra}, field, part[field])
            yield {"type": "response.content_part.done", **inside, "part": part}
        case {"type": "reasoning"}:
            yield _added(index, {**item, "summary": []})
        case {"type": "custom_tool_call"}:
            yield _added(index, {**item, "input": "", "status": "in_progress"})
            yield from _deltas(_DELTAS[item["type"]], place, "input", item["input"])
        case _:
            yield _added(index, {**item, "arguments": "", "status": "in_progress"})
            yield from _deltas(_DELTAS[item["type"]], place, "arguments", item["arguments"])
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _added(index: int, item: Document) -> Document:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _deltas(kind: str, place: Document, field: str, text: str) -> Iterator[Document]:
    for piece in pieces(text):
        yield {"type": f"{kind}.delta", **place, "delta": piece}
    yield {"type": f"{kind}.done", **place, field: text}


def _message(item: Document) -> ChatMessage:
    kind = str(item.get("type", "message"))
    if kind.endswith("_output"):
        return ChatMessage("tool", text_of(item.get("output")))
    if kind == "message":
        return ChatMessage(_SPEAKERS.get(str(item.get("role")), "system"), text_of(item.get("content")))
    if kind == "additional_tools":
        return ChatMessage("system", "")
    return ChatMessage("assistant", text_of(item))


def _tool_names(tools: Any, prefix: str = "") -> Iterator[str]:
    for tool in objects(tools):
        name = prefix + str(tool.get("name", tool.get("type")))
        if tool.get("type") == "namespace":
            yield from _tool_names(tool.get("tools"), f"{name}__")
        else:
            yield name
