"""What passes between the HTTP server and a protocol: a request as messages, a turn as documents, events and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ratchet.modelserver.turn import Turn

# Status to the usual type, code and message.
_USUAL: Mapping[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "The request is invalid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("permission_error", None, "You do not have access to this model."),
    404: (
        "invalid_request_error",
        "model_not_found",
        "The model does not exist or you do not have access to it.",
    ),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
}
# Codes that are a type of their own.
_KINDS = frozenset({"insufficient_quota", "usage_limit_reached", "usage_not_included"})
_OTHER = ("server_error", None, "The request failed.")


def openai_error(status: int, code: str | None, message: str | None) -> Document:
    """The body of an error, with what is usual for `status` where nothing is given."""
    kind, usual_code, usual_message = _USUAL.get(status, _OTHER)
    return {
        "error": {
            "message": message or (f"scripted failure: {code}" if code else usual_message),
            "type": code if code in _KINDS else kind,
            "param": None,
            "code": code or usual_code,
        }
    }


Document = dict[str, Any]
Speaker = Literal["system", "user", "tool", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, whatever protocol it came by."""

    speaker: Speaker
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A turn that answers a request."""

    turn: Turn
    id: str
    model: str
    request: Mapping[str, Any]
    at: int

    def call_id(self, index: int) -> str:
        return f"{self.id}-call-{index}"

    @property
    def failed_in_stream(self) -> bool:
        return self.turn.status == 200 and self.turn.error_code is not None


class Wire(Protocol):
    """One provider's way to write requests, answers and errors."""

    def messages(self, body: Mapping[str, Any]) -> list[Message]: ...

    def tools(self, body: Mapping[str, Any]) -> list[str]: ...

    def document(self, answer: Answer) -> Document: ...

    def events(self, answer: Answer) -> Iterator[bytes]: ...

    def error(self, status: int, code: str | None, message: str | None) -> Document: ...


def sse(data: object, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {text}\n\n".encode()


def pieces(text: str) -> list[str]:
    """`text` in the parts that it is streamed in: words with the space after them."""
    return re.findall(r"\s*\S+\s*|\s+", text)


def objects(value: Any) -> list[Document]:
    """The JSON objects in a list; nothing for what a client sends in its place by mistake."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(content: Any) -> str:
    """All text in a message's content: a string, parts, or parts within parts such as tool results."""
    match content:
        case str():
            return content
        case list():
            return "\n".join(filter(None, map(text_of, content)))
        case {"text": str(text)}:
            return text
        case {"content": inner} | {"output": inner}:
            return text_of(inner)
        case _:
            return ""
