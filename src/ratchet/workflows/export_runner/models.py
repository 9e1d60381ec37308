"""Asks a model over HTTP, again where that can help."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.value_schema import mistakes

# The makers' own address, the variable that overrides it, and the one that holds the key.
_PLACES = {
    "openai": ("https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "ollama": ("http://127.0.0.1:11434", "OLLAMA_BASE_URL", None),
}
_MAX_TOKENS = 8192
_PIECE = 65_536
_TRIES = 3
_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_REPAIRS = 2
_LARGEST_BYTES = 16 * 1024 * 1024
_SHOWN_CHARS = 300
_BUSY = frozenset({408, 409, 429})


@dataclass(frozen=True)
class ModelRequest:
    model: str
    prompt: str
    system: str | None = None
    temperature: float | None = None
    schema: Mapping[str, Any] | None = None
    """What the answer must fit."""
    max_tokens: int | None = None
    refused: tuple[tuple[str, str], ...] = ()
    """Earlier answers that were not as asked, each with the correction that was asked for."""

    @property
    def instructions(self) -> str:
        """The system prompt and, where there is a schema, about the form of its answer."""
        form = (
            "Answer with one JSON value and nothing else, no words before or after it. It must fit this JSON Schema:\n"
            + json.dumps(self.schema, ensure_ascii=False)
            if self.schema is not None
            else ""
        )
        return "\n\n".join(part for part in (self.system, form) if part)

    @property
    def conversation(self) -> list[dict[str, str]]:
        said = [{"role": "user", "content": self.prompt}]
        for answer, correction in self.refused:
            said += [{"role": "assistant", "content": answer}, {"role": "user", "content": correction}]
        return said


@dataclass(frozen=True)
class ModelAnswer:
    text: str
    tokens: int


@dataclass(frozen=True)
class ModelEndpoint:
    """One provider as this machine's environment names it."""

    provider: str
    url: str
    headers: Mapping[str, str]

    def body(self, question: ModelRequest) -> dict[str, Any]:
        return _anthropic_body(question) if self.provider == "anthropic" else _chat_body(question)

    def read(self, answer: Any) -> ModelAnswer:
        """Raises `StepFailed` for what is no whole answer of a model."""
        try:
            return _read_anthropic(answer) if self.provider == "anthropic" else _read_chat(answer)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise StepFailed(f"{self.provider} sent what is no answer of a model: {answer!r:.200}") from error


def endpoint_of(provider: str, environment: Mapping[str, str]) -> ModelEndpoint:
    """Raises `StepFailed` when a key is needed and not there; an address of your own needs none."""
    own_url, url_variable, key_variable = _PLACES[provider]
    base = environment.get(url_variable, "").strip().rstrip("/")
    key = environment.get(key_variable, "").strip() if key_variable else ""
    if key_variable and not key and not base:
        raise StepFailed(
            f"{key_variable} is not set, and {provider} needs a key",
            final=True,
            hint=f"set {key_variable}, or {url_variable} to an address that needs no key",
        )
    root = (base or own_url).removesuffix("/v1")
    if provider == "anthropic":
        headers = {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}
        return ModelEndpoint(provider, f"{root}/v1/messages", headers)
    # Other services that speak this protocol may have it anywhere.
    chat = f"{root}/v1" if provider == "ollama" else base or own_url
    return ModelEndpoint(
        provider, f"{chat}/chat/completions", {"authorization": f"Bearer {key}"} if key else {}
    )


def _chat_body(question: ModelRequest) -> dict[str, Any]:
    system = [{"role": "system", "content": question.instructions}] if question.instructions else []
    body: dict[str, Any] = {"model": question.model, "messages": [*system, *question.conversation]}
    if question.temperature is not None:
        body["temperature"] = question.temperature
    if question.max_tokens is not None:
        body["max_tokens"] = question.max_tokens
    # The protocol knows objects only; any other value is asked for in words alone.
    if question.schema is not None and question.schema.get("type") == "object":
        wanted = {"name": "answer", "schema": dict(question.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return body


def _anthropic_body(question: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": question.model,
        # This protocol requires it.
        "max_tokens": question.max_tokens or _MAX_TOKENS,
        "messages": question.conversation,
    }
    if question.instructions:
        body["system"] = question.instructions
    if question.temperature is not None:
        body["temperature"] = question.temperature
    return body


def _read_chat(answer: Any) -> ModelAnswer:
    choice = answer["choices"][0]
    message = choice["message"]
    if message.get("refusal"):
        raise StepFailed(f"the model declined: {message['refusal']}", final=True)
    if choice.get("finish_reason") == "length":
        raise StepFailed("the model's answer was cut at its largest size", final=True)
    return _whole(message["content"], (answer.get("usage") or {}).get("total_tokens", 0))


def _read_anthropic(answer: Any) -> ModelAnswer:
    text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    if answer["stop_reason"] == "refusal":
        raise StepFailed(f"the model declined: {text}", final=True)
    if answer["stop_reason"] == "max_tokens":
        raise StepFailed("the model's answer was cut at its largest size", final=True)
    usage = answer.get("usage") or {}
    counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return _whole(text, sum(usage.get(name) or 0 for name in counted))


def _whole(text: str | None, tokens: int) -> ModelAnswer:
    if not text or not text.strip():
        raise StepFailed("the model answered nothing")
    return ModelAnswer(text, tokens)


class ServerUnreachable(Exception):
    """No answer, or none in time."""


@dataclass(frozen=True)
class Answered:
    status: int
    content: bytes
    kind: str
    retry_after: str = ""


async def send(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, seconds: float, most: int
) -> Answered:
    """What came back, whatever its status is. Raises `Unreachable`."""
    request = urllib.request.Request(url, body, dict(headers), method=method)
    return await asyncio.to_thread(_send, request, time.monotonic() + seconds, most)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key would go to wherever an answer points."""

    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


def _send(request: urllib.request.Request, deadline: float, most: int) -> Answered:
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("there was no time left")
        try:
            response = opener.open(request, timeout=left)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            headers = response.headers
            return Answered(
                response.status,
                _read(response, deadline, most),
                headers.get("content-type", ""),
                headers.get("retry-after", ""),
            )
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServerUnreachable(str(getattr(error, "reason", None) or error)) from error


def _read(response: http.client.HTTPResponse, deadline: float, most: int) -> bytes:
    found = bytearray()
    while piece := response.read1(_PIECE):
        found += piece
        if len(found) > most:
            raise ServerUnreachable(f"the answer has more than {most} bytes")
        if time.monotonic() > deadline:
            raise ServerUnreachable("the answer took too long")
    return bytes(found)


class _Later(Exception):
    """Not reachable now. `pause` is how long to wait before asking again."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


async def ask(endpoint: ModelEndpoint, question: ModelRequest, seconds: float) -> ModelAnswer:
    """What the model said. Raises `StepFailed`."""
    deadline = time.monotonic() + seconds
    pause = _PAUSE_SECONDS
    for left in reversed(range(_TRIES)):
        try:
            return endpoint.read(await _post(endpoint, question, deadline - time.monotonic()))
        except _Later as later:
            if not left or later.pause > _LONGEST_PAUSE_SECONDS:
                raise StepFailed(str(later)) from later
            await asyncio.sleep(max(pause, later.pause))
            pause *= 2
    raise AssertionError("the last try returns or raises")


async def ask_for_json(endpoint: ModelEndpoint, question: ModelRequest, seconds: float) -> tuple[Any, int]:
    """A value that fits the schema of the question, and the tokens that it took with all repairs."""
    deadline, tokens = time.monotonic() + seconds, 0
    problem = ""
    for _ in range(_REPAIRS + 1):
        answer = await ask(endpoint, question, deadline - time.monotonic())
        tokens += answer.tokens
        try:
            value = json.loads(_without_fence(answer.text))
        except ValueError as error:
            problem = f"This is not JSON: {error}."
        else:
            found = next(mistakes(value, question.schema), None)
            if found is None:
                return value, tokens
            problem = f"This does not fit the schema: {found}."
        correction = f"{problem} Give the whole answer again, corrected."
        question = replace(question, refused=(*question.refused, (answer.text, correction)))
    raise StepFailed(f"the model's answer was not as asked after {_REPAIRS} repairs: {problem}")


async def _post(endpoint: ModelEndpoint, question: ModelRequest, seconds: float) -> Any:
    headers = {"content-type": "application/json", "accept": "application/json", **endpoint.headers}
    body = json.dumps(endpoint.body(question)).encode()
    try:
        answer = await send("POST", endpoint.url, headers, body, seconds=seconds, most=_LARGEST_BYTES)
    except ServerUnreachable as error:
        raise _Later(f"{endpoint.provider} at {endpoint.url} did not answer: {error}") from error
    if answer.status != 200:
        raise _refusal(endpoint, answer)
    try:
        return json.loads(answer.content)
    except ValueError as error:
        raise StepFailed(f"{endpoint.provider} sent what is not JSON: {error}") from error


def _refusal(endpoint: ModelEndpoint, answer: Answered) -> Exception:
    text = answer.content.decode(errors="replace")
    for secret in endpoint.headers.values():
        text = text.replace(secret.removeprefix("Bearer "), "…")
    reason = f"{endpoint.provider} answered {answer.status}: {' '.join(text.split())[:_SHOWN_CHARS]}"
    if answer.status not in _BUSY and answer.status < 500:
        return StepFailed(reason, final=True)
    asked = answer.retry_after
    return _Later(reason, float(asked) if asked.replace(".", "", 1).isdecimal() else 0.0)


def _without_fence(text: str) -> str:
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.partition("\n")[2].removesuffix("```")
    return text


class ExportToolFailed(StepFailed):
    """A call that failed. `final` says that calling again cannot help."""

    def __init__(self, reason: str, *, hint: str | None = None, final: bool = False) -> None:
        super().__init__(reason, hint=hint, final=final)
