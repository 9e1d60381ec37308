"""What the errors of a model's endpoint mean: one table for every engine.

A cause says what is the matter, and with it whether waiting helps, whether a person has to change something, and what.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ratchet.config.sources import dotted, variable
from ratchet.engines.failure import Failure


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
