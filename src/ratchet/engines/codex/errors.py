"""What the errors of the Codex CLI mean.

Its events carry only a text; the reason that a machine can read is in the rollout, and says "other" at times. So both
are looked at, the reason first. Everything that depends on their wording is in the tables here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ratchet.engines.endpoint_errors import Cause, SettingNames, cause_of, failure_of
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault

_BY_REASON: Mapping[str, Cause] = {
    "usage_limit_exceeded": Cause.CREDIT,
    "context_window_exceeded": Cause.SIZE,
    "rate_limit_exceeded": Cause.LATER,
    "server_overloaded": Cause.LATER,
    "internal_server_error": Cause.DOWN,
    "invalid_prompt": Cause.CONTENT,
    "cyber_policy": Cause.CONTENT,
    "unauthorized": Cause.KEY,
}

# What is the matter with Codex itself, and not with the endpoint.
_OWN: tuple[tuple[re.Pattern[str], Failure, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), failure, hint)
    for pattern, failure, hint in (
        (r"missing environment variable", Failure.MISSING, "put the key into {variable}"),
        (
            r"unknown configuration field|unknown feature",
            Failure.MISSING,
            "use a version of Codex that knows every setting; see docs/engines.md",
        ),
        (
            r"required mcp server|mcp (server|client).*(failed|timed out)",
            Failure.CRASHED,
            "start the MCP server by hand to see why it fails",
        ),
        (r"incomplete response (?!.*content_filter)", Failure.BAD_OUTPUT, "ask for less in one session"),
    )
)
_STATUS = re.compile(r"status:? (\d{3})\b", re.IGNORECASE)
_WAIT = re.compile(r"try again in (?:(\d+)m)?(?:(\d+(?:\.\d+)?)\s*(ms|s))", re.IGNORECASE)


def fault_of(message: str, reason: Any, names: SettingNames) -> Fault:
    """The failure behind an error of Codex; `reason` is what the rollout says."""
    failure, hint = _meaning(message, reason, names)
    return Fault(
        failure,
        f"Codex failed: {message.strip() or 'it did not say why'}",
        hint=hint,
        retry_after=_seconds_in(message) if failure is Failure.RATE_LIMITED else None,
    )


def _meaning(message: str, reason: Any, names: SettingNames) -> tuple[Failure, str]:
    cause = _BY_REASON.get(reason) if isinstance(reason, str) else None
    for pattern, failure, hint in () if cause else _OWN:
        if pattern.search(message):
            return failure, hint.format(variable=names.key)
    cause = cause or cause_of(_status(message, reason), message) or _guess(message)
    return failure_of(cause), names.hint(cause)


def _status(message: str, reason: Any) -> int | None:
    """The status that the endpoint answered with, as far as Codex tells it."""
    for detail in reason.values() if isinstance(reason, dict) else ():
        status = detail.get("http_status_code") if isinstance(detail, dict) else None
        if isinstance(status, int):
            return status
    if told := _STATUS.search(message):
        return int(told[1])
    return 400 if reason == "bad_request" or message.lstrip().startswith("{") else None


def _guess(message: str) -> Cause:
    return Cause.LATER if "rate limit" in message.lower() else Cause.DOWN


def _seconds_in(message: str) -> float | None:
    found = _WAIT.search(message)
    if found is None:
        return None
    minutes, number, unit = found.groups()
    return int(minutes or 0) * 60 + float(number) / (1000 if unit.lower() == "ms" else 1)
