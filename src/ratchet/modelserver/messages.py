"""Anthropic Messages: what the Claude CLI speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ratchet.modelserver.turn import (
    ChatMessage,
    Document,
    ScriptedAnswer,
    ScriptedCall,
    Tokens,
    objects,
    pieces,
    sse,
    text_of,
)

# Status to the usual type and message.
_USUAL: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "The request is invalid."),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "Your API key does not have permission to use this model."),
    404: ("not_found_error", "The requested model was not found."),
    413: ("request_too_large", "The request exceeds the maximum size."),
    429: ("rate_limit_error", "This request would exceed your rate limit."),
    529: ("overloaded_error", "Overloaded"),
}
_REASONS = {"length": "max_tokens", "refused": "refusal"}


class Messages:
    """`POST /v1/messages`"""

    def messages(self, body: Mapping[str, Any]) -> list[ChatMessage]:
        given = objects(body.get("messages"))
        return [
            ChatMessage("system", text_of(body.get("system"))),
            *(m for each in given for m in _read(each)),
        ]

    def tools(self, body: Mapping[str, Any]) -> list[str]:
        return [str(each.get("name")) for each in objects(body.get("tools"))]

    def document(self, answer: ScriptedAnswer) -> Document:
        return {**_head(answer), "content": _blocks(answer), "stop_reason": _reason(answer)}

    def events(self, answer: ScriptedAnswer) -> Iterator[bytes]:
        for event in self._documents(answer):
            yield sse(event, event["type"])

    def error(self, status: int, code: str | None, message: str | None) -> Document:
        kind, usual = _USUAL.get(status, ("api_error", "Internal server error"))
        told = message or (f"scripted failure: {code}" if code else usual)
        return {"type": "error", "error": {"type": code or kind, "message": told}}

    def _documents(self, answer: ScriptedAnswer) -> Iterator[Document]:
        used = _usage(answer.turn.usage)
        yield {"type": "message_start", "message": {**_head(answer), "usage": {**used, "output_tokens": 1}}}
        for index, block in enumerate(_blocks(answer)):
            yield from _block_events(index, block)
        if answer.failed_in_stream:
            yield self.error(500, answer.turn.error_code, answer.turn.error_message)
            return
        delta = {"stop_reason": _reason(answer), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": used}
        yield {"type": "message_stop"}


def _head(answer: ScriptedAnswer) -> Document:
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(answer.turn.usage),
    }


def _usage(tokens: Tokens | None) -> Document:
    """Here the input does not hold the cached tokens. The protocol demands usage, so unknown is zero."""
    tokens = tokens or Tokens(input=0, output=0)
    return {
        "input_tokens": tokens.input - tokens.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
    }


def _reason(answer: ScriptedAnswer) -> str:
    usual = "tool_use" if answer.turn.calls else "end_turn"
    return _REASONS.get(answer.turn.ended, usual)


def _blocks(answer: ScriptedAnswer) -> list[Document]:
    turn, blocks = answer.turn, list[Document]()
    if turn.thinking is not None:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": "scripted"})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    return blocks + [
        {"type": "tool_use", "id": answer.call_id(i), "name": each.full_name, "input": _input(each)}
        for i, each in enumerate(turn.calls)
    ]


def _input(call: ScriptedCall) -> Any:
    """The arguments as a value; text that is not JSON, or is not meant to be, goes where free text can."""
    if call.custom:
        return {"input": call.text}
    try:
        return json.loads(call.text)
    except ValueError:
        return call.text


def _block_events(index: int, block: Document) -> Iterator[Document]:
    """A block from empty to done."""
    match block["type"]:
        case "tool_use":
            given = block["input"]
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            empty, kind, field = {**block, "input": {}}, "input_json_delta", "partial_json"
        case "thinking":
            text = block["thinking"]
            empty, kind, field = {**block, "thinking": "", "signature": ""}, "thinking_delta", "thinking"
        case _:
            text = block["text"]
            empty, kind, field = {**block, "text": ""}, "text_delta", "text"
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    for piece in pieces(text):
        yield _delta(index, {"type": kind, field: piece})
    if block["type"] == "thinking":
        yield _delta(index, {"type": "signature_delta", "signature": block["signature"]})
    yield {"type": "content_block_stop", "index": index}


def _delta(index: int, delta: Document) -> Document:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _read(message: Document) -> Iterator[ChatMessage]:
    """A user's message may hold tool results beside what the user says."""
    content = message.get("content")
    role = message.get("role")
    if role != "user":
        yield ChatMessage("assistant" if role == "assistant" else "system", text_of(content))
    elif isinstance(content, list):
        for part in content:
            is_result = isinstance(part, dict) and part.get("type") == "tool_result"
            yield ChatMessage("tool" if is_result else "user", text_of(part))
    else:
        yield ChatMessage("user", text_of(content))
