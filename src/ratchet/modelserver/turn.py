"""Turns: what the scripted model answers, one request after the other, and how they go over the wire."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ratchet.kernel import Misuse

# Status to the usual type, code and message.
_USUAL_ERRORS: Mapping[int, tuple[str, str | None, str]] = {
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
    kind, usual_code, usual_message = _USUAL_ERRORS.get(status, _OTHER)
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
class ChatMessage:
    """One message of a conversation, whatever protocol it came by."""

    speaker: Speaker
    text: str


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
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

    def messages(self, body: Mapping[str, Any]) -> list[ChatMessage]: ...

    def tools(self, body: Mapping[str, Any]) -> list[str]: ...

    def document(self, answer: ScriptedAnswer) -> Document: ...

    def events(self, answer: ScriptedAnswer) -> Iterator[bytes]: ...

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


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool that the model calls.

    `arguments` are an object, or the exact text to send for them: a free-form tool (`custom`) takes any text, and a
    broken model sends text that is not JSON. A `namespace` such as `mcp__trial` becomes part of the name where the
    protocol has no namespaces.
    """

    name: str
    arguments: Mapping[str, Any] | str = ""
    namespace: str | None = None
    custom: bool = False

    @property
    def full_name(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}__{self.name}"

    @property
    def text(self) -> str:
        """The arguments as they are sent."""
        if isinstance(self.arguments, str):
            return self.arguments if self.arguments or self.custom else "{}"
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an answer is said to have used. The cached ones are part of the input, the reasoning ones of the output."""

    input: int = 100
    cached: int = 0
    output: int = 10
    reasoning: int = 0

    def __post_init__(self) -> None:
        if min(self.input, self.cached, self.output, self.reasoning) < 0:
            raise Misuse(f"{self} has less than no tokens")
        if self.cached > self.input or self.reasoning > self.output:
            raise Misuse(f"{self} has more cached than input, or more reasoning than output tokens")


_USUAL = Tokens()


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model.

    `status` other than 200 answers with an HTTP error in the provider's own shape; with 200 and an `error_code` the
    answer begins well and fails inside the stream (without a stream it is status 500). `cut_after` closes the
    connection and `hang_after` falls silent after that many events of the stream, at the latest before the last one;
    0 is before the first byte. `raw` is sent as it is instead of an answer.
    """

    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    thinking: str | None = None
    usage: Tokens | None = _USUAL
    ended: Literal["normally", "length", "refused"] = "normally"

    status: int = 200
    retry_after: float | None = None
    error_code: str | None = None
    error_message: str | None = None

    delay_seconds: float = 0
    pace_seconds: float = 0
    cut_after: int | None = None
    hang_after: int | None = None
    raw: str | None = None

    when: str | None = None
    """Only for a request whose newest user or tool messages contain this."""
    within: str | None = None
    """Only for a request whose user or tool messages contain this anywhere, so for one conversation."""
    repeat: int | Literal["always"] = 1

    def __post_init__(self) -> None:
        if not 200 <= self.status <= 599:
            raise Misuse(f"status {self.status} is not an HTTP status between 200 and 599")
        if self.repeat != "always" and self.repeat < 1:
            raise Misuse(f"repeat {self.repeat!r} is less than one answer", hint='say a number, or "always"')
        for name in ("delay_seconds", "pace_seconds", "retry_after", "cut_after", "hang_after"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise Misuse(f"{name} {value!r} is not a number of at least 0")
        if self.fails and (self.text is not None or self.calls):
            raise Misuse(
                f"status {self.status} is an error: it has no text or calls", hint="use error_message"
            )
        given = [name for name in ("raw", "cut_after", "hang_after") if getattr(self, name) is not None]
        instead = [*given, *(["status"] if self.fails and given != ["raw"] else [])]
        if len(instead) > 1:
            raise Misuse(f"{' and '.join(instead)} exclude each other", hint="make them two turns")

    @property
    def fails(self) -> bool:
        """Whether this is an HTTP error instead of an answer."""
        return self.status != 200


def say(text: str, *, usage: Tokens | None = _USUAL) -> Turn:
    """A message, after which the model is done."""
    return Turn(text=text, usage=usage)


def answer(value: object, *, usage: Tokens | None = _USUAL) -> Turn:
    """A message that is JSON: structured output."""
    return Turn(text=json.dumps(value, ensure_ascii=False), usage=usage)


def call(name: str, /, **arguments: Any) -> Turn:
    """One tool call."""
    return Turn(calls=(ScriptedCall(name, arguments),))


def call_mcp(server: str, tool: str, /, **arguments: Any) -> Turn:
    """One call of a tool that the MCP server named `server` offers."""
    return Turn(calls=(ScriptedCall(tool, arguments, namespace=f"mcp__{server}"),))


def call_freely(name: str, text: str, /) -> Turn:
    """One call of a free-form tool, such as `apply_patch` with a patch."""
    return Turn(calls=(ScriptedCall(name, text, custom=True),))


def fail(
    status: int, *, retry_after: float | None = None, code: str | None = None, message: str | None = None
) -> Turn:
    """An HTTP error instead of an answer."""
    return Turn(status=status, retry_after=retry_after, error_code=code, error_message=message)


def cut(text: str = "this will not end", *, after: int = 3) -> Turn:
    """A message whose stream is cut after some events."""
    return Turn(text=text, cut_after=after)


def hang(*, after: int = 0) -> Turn:
    """An answer that falls silent after some events, and stays so until the client goes away."""
    return Turn(text="this will not end", hang_after=after)
