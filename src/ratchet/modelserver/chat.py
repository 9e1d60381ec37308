"""OpenAI chat completions: what most providers and local servers, Ollama among them, speak."""

from __future__ import annotations

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

_SPEAKERS: Mapping[str, Speaker] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class ChatCompletions:
    """`POST /v1/chat/completions`"""

    def messages(self, body: Mapping[str, Any]) -> list[ChatMessage]:
        return [
            ChatMessage(_SPEAKERS.get(str(each.get("role")), "system"), text_of(each.get("content")))
            for each in objects(body.get("messages"))
        ]

    def tools(self, body: Mapping[str, Any]) -> list[str]:
        inside = [each.get("function") or each.get("custom") for each in objects(body.get("tools"))]
        return [str(each.get("name")) for each in objects(inside)]

    def document(self, answer: ScriptedAnswer) -> Document:
        choice = {"index": 0, "message": _message(answer), "finish_reason": _reason(answer), "logprobs": None}
        document = {**_head(answer, "chat.completion"), "choices": [choice]}
        if answer.turn.usage is not None:
            document["usage"] = _usage(answer.turn.usage)
        return document

    def events(self, answer: ScriptedAnswer) -> Iterator[bytes]:
        for delta in _deltas(answer):
            yield sse(_chunk(answer, delta))
        if answer.failed_in_stream:
            yield sse(self.error(500, answer.turn.error_code, answer.turn.error_message))
            return
        yield sse(_chunk(answer, {}, _reason(answer)))
        options = answer.request.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage") and answer.turn.usage is not None:
            head = _head(answer, "chat.completion.chunk")
            yield sse({**head, "choices": [], "usage": _usage(answer.turn.usage)})
        yield sse("[DONE]")

    def error(self, status: int, code: str | None, message: str | None) -> Document:
        return openai_error(status, code, message)


def _head(answer: ScriptedAnswer, kind: str) -> Document:
    return {"id": answer.id, "object": kind, "created": answer.at, "model": answer.model}


def _chunk(answer: ScriptedAnswer, delta: Document, reason: str | None = None) -> Document:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return {**_head(answer, "chat.completion.chunk"), "choices": [choice]}


def _usage(tokens: Tokens) -> Document:
    return {
        "prompt_tokens": tokens.input,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens": tokens.output,
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def _reason(answer: ScriptedAnswer) -> str:
    if answer.turn.ended == "length":
        return "length"
    return "tool_calls" if answer.turn.calls else "stop"


def _message(answer: ScriptedAnswer) -> Document:
    turn = answer.turn
    refused = turn.ended == "refused"
    message: Document = {
        "role": "assistant",
        "content": None if refused else turn.text,
        "refusal": turn.text if refused else None,
    }
    if turn.thinking is not None:
        message["reasoning_content"] = turn.thinking
    if turn.calls:
        message["tool_calls"] = [_call(each, answer.call_id(i)) for i, each in enumerate(turn.calls)]
    return message


def _call(call: ScriptedCall, call_id: str) -> Document:
    if call.custom:
        return {"id": call_id, "type": "custom", "custom": {"name": call.full_name, "input": call.text}}
    return {"id": call_id, "type": "function", "function": {"name": call.full_name, "arguments": call.text}}


def _deltas(answer: ScriptedAnswer) -> Iterator[Document]:
    turn = answer.turn
    yield {"role": "assistant", "content": ""}
    for piece in pieces(turn.thinking or ""):
        yield {"reasoning_content": piece}
    for piece in pieces(turn.text or ""):
        yield {"refusal" if turn.ended == "refused" else "content": piece}
    for index, call in enumerate(turn.calls):
        whole = _call(call, answer.call_id(index))
        inside, field = ("custom", "input") if call.custom else ("function", "arguments")
        yield {"tool_calls": [{"index": index, **whole, inside: {**whole[inside], field: ""}}]}
        for piece in pieces(call.text):
            yield {"tool_calls": [{"index": index, inside: {field: piece}}]}
