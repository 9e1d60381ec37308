"""The endpoint of a model: what its errors mean, whether it accepts a key and has a model, and keys kept out of texts.

A cause says what is the matter, and with it whether waiting helps, whether a person has to change something, and what.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from ratchet.config.redaction import MASK
from ratchet.config.sources import dotted, variable
from ratchet.engines.engine import Failure, Readiness

if TYPE_CHECKING:
    import httpx2


# Shorter ones are placeholders; hiding them would only spoil the text.
_SHORTEST = 6


class HiddenKeys:
    def __init__(self, values: Iterable[str]) -> None:
        self._values = sorted({each for each in values if len(each) >= _SHORTEST}, key=len, reverse=True)

    def hide(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, MASK)
        return text

    def held_back(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a secret."""
        longest = 0
        for value in self._values:
            for length in range(min(len(value) - 1, len(text)), longest, -1):
                if value.startswith(text[-length:]):
                    longest = length
                    break
        return longest


class Cause(StrEnum):
    KEY = "key"
    """The key is not accepted, or may not be used for this."""
    CREDIT = "credit"
    """The account has no credit or quota left."""
    MODEL = "model"
    """There is no such model, or not for this key."""
    LATER = "later"
    """Too many requests, or too much load: it asks to come back."""
    DOWN = "down"
    """It failed, or cannot be reached."""
    SIZE = "size"
    """The request is larger than the model takes."""
    CONTENT = "content"
    """It will not answer this."""
    REQUEST = "request"
    """It does not accept the request, for a reason of its own."""


_FAILURES: Mapping[Cause, Failure] = {
    Cause.KEY: Failure.NO_ACCESS,
    Cause.CREDIT: Failure.NO_ACCESS,
    Cause.MODEL: Failure.NO_ACCESS,
    Cause.LATER: Failure.RATE_LIMITED,
    Cause.DOWN: Failure.CRASHED,
    Cause.SIZE: Failure.REFUSED,
    Cause.CONTENT: Failure.REFUSED,
    Cause.REQUEST: Failure.REFUSED,
}

# Looked at before the status: providers use one status for several things.
_WORDS = tuple(
    (re.compile(pattern, re.IGNORECASE), cause)
    for pattern, cause in (
        # Some say the same of a limit by the minute, and then how long it lasts.
        (r"retry in \d|try again in \d|retryDelay", Cause.LATER),
        (
            r"insufficient_quota|current quota|quota exceeded|credit balance|usage[_ ]limit|billing"
            r"|insufficient (credit|balance|funds)|out of credit|payment required",
            Cause.CREDIT,
        ),
        (r"context.length|context window|prompt is too long|too many tokens", Cause.SIZE),
        (r"model_not_found|model\b.{0,80}\b(does not exist|not found|not supported)", Cause.MODEL),
        (r"invalid_api_key|incorrect api key|invalid x-api-key|authentication_error", Cause.KEY),
        (r"content_filter|content policy", Cause.CONTENT),
    )
)
_STATUSES: Mapping[int, Cause] = {
    401: Cause.KEY,
    402: Cause.CREDIT,
    403: Cause.KEY,
    404: Cause.MODEL,
    408: Cause.DOWN,
    413: Cause.SIZE,
    425: Cause.DOWN,
    429: Cause.LATER,
    529: Cause.LATER,
}


@dataclass(frozen=True, slots=True)
class SettingNames:
    """Where an engine takes its key, its model and its address from, to say what is to be changed.

    `key` is the variable that holds the key, `table` has the settings of the endpoint, and `model` is the setting that
    names the model. `address` is what set the address; nothing where it is the maker's own.
    """

    key: str | None
    table: str
    model: str
    address: str | None = None

    def hint(self, cause: Cause) -> str:
        """What to do next."""
        key = f"the key in {self.key}" if self.key else "the key"
        match cause:
            case Cause.KEY if not self.key:
                return f"name the variable that holds the key in {self.table}.key_variable"
            case Cause.KEY:
                return f"put a valid key into the environment (export {self.key}=…) that may use this model"
            case Cause.CREDIT:
                return f"check the billing of the account of {key}: nothing is left of it; or use another key"
            case Cause.MODEL:
                return f"name a model that {key} may use: set {self.model}" + (
                    f", and check {self.address}" if self.address else ""
                )
            case Cause.LATER:
                return "try again later, or run fewer sessions at once"
            case Cause.DOWN:
                address = f"{self.address}, " if self.address else ""
                return f"check {address}the network and the state of the endpoint"
            case Cause.SIZE:
                return "ask for less in one session, or start a new one instead of resuming"
            case Cause.CONTENT:
                return "change the prompt, or use another model"
            case Cause.REQUEST:
                return f"check {self.model}" + (f" and {self.address}" if self.address else "")


def base_url_setting(table: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """What has set the address in a table of the settings: the variable for it, or the key in the file."""
    key = (*table, "base_url")
    return variable(key) if environment.get(variable(key)) else dotted(key)


def failure_of(cause: Cause) -> Failure:
    return _FAILURES[cause]


def cause_of(status: int | None, words: str) -> Cause | None:
    """What an answer with this status and these words means; nothing if they do not tell."""
    found = next((cause for pattern, cause in _WORDS if pattern.search(words)), None)
    if found is not None and (status is None or status < 500):
        return found
    if status is None or status in _STATUSES:
        return None if status is None else _STATUSES[status]
    if 400 <= status < 500:
        return Cause.REQUEST
    return Cause.DOWN if status >= 500 else None


_SECONDS = 8.0
_WHOLE_SECONDS = 10.0
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class ProbedEndpoint:
    """`url` is the address below which `models` lies. Without a model only the key is looked at."""

    name: str
    url: str
    key: str
    model: str | None
    names: SettingNames
    speaks: Literal["openai", "anthropic", "ollama"] = "openai"
    key_kind: Literal["api_key", "oauth_token"] = "api_key"
    asks: Literal["chat/completions", "responses", "messages"] = "chat/completions"
    """Where a session asks the model."""


async def probe(endpoint: ProbedEndpoint) -> Readiness:
    """Whether a session could begin with this key. What an endpoint does not tell counts in its favour."""
    import httpx2

    from ratchet.engines.llm.connection import http_client

    try:
        # The HTTP client finds out while it connects, and says so in a group of exceptions.
        _ = urlsplit(endpoint.url).port
    except ValueError as error:
        wrong = f"{endpoint.name}: the address {endpoint.url} is wrong ({error})"
        return Readiness(False, wrong, endpoint.names.hint(Cause.DOWN), Failure.MISSING)
    try:
        async with asyncio.timeout(_WHOLE_SECONDS), http_client(_SECONDS) as http:
            answer = await _get(http, endpoint, "models")
            cause = _refusal(answer)
            models = _models(answer)
            listed = models is not None and _has(models, endpoint)
            if cause is None and models and not listed and endpoint.model:
                # A list need not name every model, so the model itself is asked for.
                answer = await _get(http, endpoint, f"models/{endpoint.model}")
                cause = Cause.MODEL if _lacks_model(answer, endpoint) else None
            is_open = bool(models and endpoint.key) and await _lists_to_all(http, endpoint)
            lists = answer
            if cause is None and (models is not None or answer.status_code == 404):
                answer = await _without_request(http, endpoint) or answer
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, TimeoutError) as error:
        message = HiddenKeys([endpoint.key]).hide(_in_words(error))
        return Readiness(
            False,
            f"{endpoint.name}: {endpoint.url} cannot be reached ({message})",
            endpoint.names.hint(Cause.DOWN),
            Failure.CRASHED,
        )
    if cause is not None:
        return _not_ready(endpoint, cause, answer)
    if (what := _no_protocol(answer)) is not None:
        message = f"{endpoint.name}: {answer.url} does not speak the protocol: it answers with {what}"
        hint = _better_address(endpoint) or endpoint.names.hint(Cause.DOWN)
        return Readiness(False, message, hint, Failure.NO_ACCESS)
    if answer.is_redirect:
        where = answer.headers.get("location", "nowhere")[:_SHOWN]
        message = f"{endpoint.name}: {answer.url} redirects to {where}, and no session follows it"
        hint = f"set {endpoint.names.address or endpoint.names.table + '.base_url'} to an address that answers itself"
        return Readiness(False, message, hint, Failure.NO_ACCESS)
    if models is None and lists.status_code == answer.status_code == 404:
        message = (
            f"{endpoint.name}: {endpoint.url} has neither a list of models nor {endpoint.asks} (HTTP 404)"
        )
        hint = _better_address(endpoint) or endpoint.names.hint(Cause.DOWN)
        return Readiness(False, message, hint, Failure.NO_ACCESS)
    if (unproven := _unproven(lists, models)) is not None:
        message = f"{endpoint.name}: {endpoint.url} could not be verified ({unproven})"
        return Readiness(True, message, _better_address(endpoint), unproven=unproven)
    unlisted = "" if listed or not endpoint.model else " (it does not list this model)"
    unproven = "it lists its models without a key" if is_open else None
    return Readiness(True, f"{endpoint.name}: {endpoint.url} answers{unlisted}", unproven=unproven)


async def _get(http: httpx2.AsyncClient, endpoint: ProbedEndpoint, path: str) -> httpx2.Response:
    return await http.get(f"{endpoint.url}/{path}", headers=_headers(endpoint))


async def _without_request(http: httpx2.AsyncClient, endpoint: ProbedEndpoint) -> httpx2.Response | None:
    """What comes of asking the model nothing. A model's server refuses that, and nobody pays for it.

    A network or a proxy that wants a login first answers it as it would answer a session.
    """
    import httpx2

    try:
        return await http.post(f"{endpoint.url}/{endpoint.asks}", headers=_headers(endpoint), json=[])
    except httpx2.HTTPError:
        # Whether it breaks off for ever only a session can tell.
        return None


def _no_protocol(answer: httpx2.Response) -> str | None:
    """What a server that is no model's answers instead; nothing if it may be one."""
    if answer.status_code != 200:
        return None
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "text/html":
        return "a web page (HTML)"
    try:
        answer.json()
    except ValueError:
        return None if kind == "text/event-stream" else f"what is not JSON ({kind or 'of no type'})"
    except RecursionError:
        return "JSON that is nested too deeply"
    return None


def _headers(endpoint: ProbedEndpoint) -> dict[str, str]:
    headers = {}
    if endpoint.key and endpoint.speaks == "anthropic" and endpoint.key_kind == "api_key":
        headers["x-api-key"] = endpoint.key
    elif endpoint.key:
        headers["authorization"] = f"Bearer {endpoint.key}"
    if endpoint.speaks == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    return headers


async def _lists_to_all(http: httpx2.AsyncClient, endpoint: ProbedEndpoint) -> bool:
    """Whether the models are listed without a key, too, so that the list says nothing of the key."""
    return _models(await _get(http, replace(endpoint, key=""), "models")) is not None


def _in_words(error: Exception) -> str:
    """A time that is over says nothing by itself."""
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return f"no answer within {_SECONDS:g} s"
    if isinstance(error, TimeoutError):
        return f"no whole answer within {_WHOLE_SECONDS:g} s"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _refusal(answer: httpx2.Response) -> Cause | None:
    """Why no session could begin, if the endpoint says so. A key that may only not list models is no reason."""
    if answer.status_code < 400 or answer.status_code in (404, 405) or "scope" in answer.text:
        return None
    cause = cause_of(answer.status_code, answer.text)
    return cause if cause in (Cause.KEY, Cause.CREDIT) else None


def _lacks_model(answer: httpx2.Response, endpoint: ProbedEndpoint) -> bool:
    if endpoint.speaks == "ollama":
        return True
    gone = cause_of(None, answer.text) is Cause.MODEL or "not_found_error" in answer.text
    return answer.status_code == 404 and gone


def _not_ready(endpoint: ProbedEndpoint, cause: Cause, answer: httpx2.Response) -> Readiness:
    if cause is Cause.MODEL and endpoint.speaks == "ollama":
        fix = f"ollama pull {endpoint.model}"
        return Readiness(
            False, f"{endpoint.name}: Ollama does not have this model", fix, failure_of(Cause.MODEL)
        )
    what = {
        Cause.KEY: "the key is refused",
        Cause.CREDIT: "the account has no credit left",
        Cause.MODEL: f"there is no model {endpoint.model}",
    }[cause]
    message = f"{endpoint.name}: {what} by {endpoint.url} (HTTP {answer.status_code})"
    return Readiness(False, message, endpoint.names.hint(cause), failure_of(cause))


def _models(answer: httpx2.Response) -> set[str] | None:
    """The models that the endpoint lists, if it does."""
    try:
        return {str(each["id"]) for each in answer.json()["data"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _unproven(answer: httpx2.Response, models: set[str] | None) -> str | None:
    """Why the answer shows nothing of the key; nothing if it does."""
    if models is not None or "scope" in answer.text:
        return None
    if answer.status_code >= 400:
        return f"HTTP {answer.status_code}"
    return "its answer is no list of models"


def _better_address(endpoint: ProbedEndpoint) -> str | None:
    """What the address seems to lack, or to have too much of."""
    if endpoint.speaks == "anthropic" or endpoint.url.endswith("/v1"):
        return None
    before, version, _ = endpoint.url.partition("/v1/")
    better = f"{before}/v1" if version else f"{endpoint.url.rstrip('/')}/v1"
    return f"such an address ends in /v1 as a rule: set {endpoint.names.address or 'it'} to {better}"


def _has(models: set[str], endpoint: ProbedEndpoint) -> bool:
    # Ollama calls the model `qwen3` also `qwen3:latest`.
    return endpoint.model in models or f"{endpoint.model}:latest" in models
