"""Where models are asked: which address, with which key, in which protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.flowkit.errors import StepFailed

# The makers' own address, the variable that overrides it, and the one that holds the key.
_PLACES = {
    "openai": ("https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "ollama": ("http://127.0.0.1:11434", "OLLAMA_BASE_URL", None),
}
_MAX_TOKENS = 8192


@dataclass(frozen=True)
class Question:
    model: str
    prompt: str
    system: str | None = None
    temperature: float | None = None
    schema: Mapping[str, Any] | None = None
    """What the answer must fit."""
    max_tokens: int | None = None
    refused: tuple[tuple[str, str], ...] = ()
    """Earlier answers that were not as asked, each with what the model was told about it."""

    @property
    def instructions(self) -> str:
        """What the model is told about itself and, where there is a schema, about the form of its answer."""
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
        for answer, told in self.refused:
            said += [{"role": "assistant", "content": answer}, {"role": "user", "content": told}]
        return said


@dataclass(frozen=True)
class Answer:
    text: str
    tokens: int


@dataclass(frozen=True)
class Endpoint:
    """One provider as this machine's environment names it."""

    provider: str
    url: str
    headers: Mapping[str, str]

    def body(self, question: Question) -> dict[str, Any]:
        return _anthropic_body(question) if self.provider == "anthropic" else _chat_body(question)

    def read(self, answer: Any) -> Answer:
        """Raises `StepFailed` for what is no whole answer of a model."""
        try:
            return _read_anthropic(answer) if self.provider == "anthropic" else _read_chat(answer)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise StepFailed(f"{self.provider} sent what is no answer of a model: {answer!r:.200}") from error


def endpoint_of(provider: str, environment: Mapping[str, str]) -> Endpoint:
    """Raises `StepFailed` when a key is needed and not there; an address of your own needs none."""
    own_url, url_variable, key_variable = _PLACES[provider]
    base = environment.get(url_variable, "").strip().rstrip("/")
    key = environment.get(key_variable, "").strip() if key_variable else ""
    if key_variable and not key and not base:
        raise StepFailed(
            f"{key_variable} is not set, and {provider} answers nobody without a key",
            final=True,
            hint=f"set {key_variable}, or {url_variable} to an address that needs no key",
        )
    root = (base or own_url).removesuffix("/v1")
    if provider == "anthropic":
        headers = {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}
        return Endpoint(provider, f"{root}/v1/messages", headers)
    # Other services that speak this protocol may have it anywhere.
    chat = f"{root}/v1" if provider == "ollama" else base or own_url
    return Endpoint(provider, f"{chat}/chat/completions", {"authorization": f"Bearer {key}"} if key else {})


def _chat_body(question: Question) -> dict[str, Any]:
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


def _anthropic_body(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": question.model,
        # This protocol wants to be told.
        "max_tokens": question.max_tokens or _MAX_TOKENS,
        "messages": question.conversation,
    }
    if question.instructions:
        body["system"] = question.instructions
    if question.temperature is not None:
        body["temperature"] = question.temperature
    return body


def _read_chat(answer: Any) -> Answer:
    choice = answer["choices"][0]
    message = choice["message"]
    if message.get("refusal"):
        raise StepFailed(f"the model declined: {message['refusal']}", final=True)
    if choice.get("finish_reason") == "length":
        raise StepFailed("the model's answer was cut at its largest size", final=True)
    return _whole(message["content"], (answer.get("usage") or {}).get("total_tokens", 0))


def _read_anthropic(answer: Any) -> Answer:
    text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    if answer["stop_reason"] == "refusal":
        raise StepFailed(f"the model declined: {text}", final=True)
    if answer["stop_reason"] == "max_tokens":
        raise StepFailed("the model's answer was cut at its largest size", final=True)
    usage = answer.get("usage") or {}
    counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return _whole(text, sum(usage.get(name) or 0 for name in counted))


def _whole(text: str | None, tokens: int) -> Answer:
    if not text or not text.strip():
        raise StepFailed("the model answered nothing")
    return Answer(text, tokens)
