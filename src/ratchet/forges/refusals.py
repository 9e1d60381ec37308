"""What an answer that is no success means."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from ratchet.forges.api import Answer, Api
from ratchet.forges.errors import (
    Forbidden,
    ForgeError,
    NotThere,
    RateLimited,
    Refused,
    Unauthenticated,
    Unreachable,
)

_SHOWN = 300
_MINUTE = 60.0
_LONGEST_WAIT = 24 * 3600.0


def refusal(answer: Answer, api: Api, what: str) -> ForgeError:
    """The error for an answer; `what` names what was asked for."""
    said = api.hide(complaint(answer))
    status = answer.status
    if status == 429 or (status == 403 and _exhausted(answer)):
        return RateLimited(f"{what}: the forge wants no more requests for now: {said}", seconds=_wait(answer))
    if status == 401:
        return Unauthenticated(f"{what}: the forge does not accept the login: {said}", hint=api.login)
    if status == 403:
        return Forbidden(
            f"{what}: the forge forbids it: {said}",
            hint="the token needs the right to write pull requests of this repository, and to read its checks",
        )
    if status in (404, 410):
        return NotThere(
            f"{what}: the forge has no such thing, or does not show it: {said}",
            hint="check the git_url of the project, and that the token may see the repository",
        )
    if 300 <= status < 400:
        return NotThere(
            f"{what}: the repository has moved (HTTP {status})",
            hint="give the project the new git_url",
        )
    if status >= 500:
        return Unreachable(f"{what}: the forge failed (HTTP {status}): {said}", hint="try again later")
    return Refused(f"{what}: the forge refused (HTTP {status}): {said}")


def complaint(answer: Answer) -> str:
    """What the forge says in an answer that is no success, in one line."""
    value = answer.value if answer.content else None
    found: list[str] = []
    if isinstance(value, dict):
        parts = [value.get("message"), value.get("error"), value.get("errors")]
        found = [text for part in parts for text in _texts(part)]
    return " ".join("; ".join(found).split())[:_SHOWN] or f"HTTP {answer.status} without a reason"


def _texts(value: object, depth: int = 3) -> list[str]:
    if isinstance(value, str):
        return [value]
    if depth and isinstance(value, list):
        return [text for each in value[:10] for text in _texts(each, depth - 1)]
    if depth and isinstance(value, dict):
        named = value.get("message")
        return (
            [named]
            if isinstance(named, str)
            else [text for each in list(value.values())[:10] for text in _texts(each, depth - 1)]
        )
    return []


def _exhausted(answer: Answer) -> bool:
    return answer.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in answer.headers


def _wait(answer: Answer) -> float:
    """The seconds until it is worth asking again: what the forge says, within reason, else a minute."""
    after = answer.headers.get("retry-after", "")
    reset = answer.headers.get("x-ratelimit-reset") or answer.headers.get("ratelimit-reset") or ""
    if after.isdecimal():
        seconds = float(after)
    elif after:
        seconds = _until(after)
    elif reset.isdecimal():
        seconds = float(reset) - time.time()
    else:
        seconds = _MINUTE
    return min(max(1.0, seconds), _LONGEST_WAIT)


def _until(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return _MINUTE
