"""What the errors of the Codex CLI mean.

Its events carry only a text; the reason that a machine can read is in the rollout, and says "other" at times. So both
are looked at, the reason first. Everything that depends on their wording is in the tables here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault

_KEY = "check the key in {variable}, and that it may use this model"
_PLAN = "check the plan and the billing of the key in {variable}"
_MODEL = "check engines.codex.model and engines.codex.base_url"
_SMALLER = "ask for less in one session, or start a new one instead of resuming"
_LATER = "try again later, or run fewer sessions at once"
_REACH = "check engines.codex.base_url, the network and the state of the endpoint"
_VERSION = "use a version of Codex that knows every setting; see docs/engines.md"
_TOOLS = "start the MCP server by hand to see why it fails"
_REWORD = "change the prompt"

_Meaning = tuple[Failure, str]

_BY_STATUS: Mapping[int, _Meaning] = {
    400: (Failure.REFUSED, _MODEL),
    401: (Failure.REFUSED, _KEY),
    402: (Failure.REFUSED, _PLAN),
    403: (Failure.REFUSED, _KEY),
    404: (Failure.REFUSED, _MODEL),
    429: (Failure.RATE_LIMITED, _LATER),
}

_BY_REASON: Mapping[str, _Meaning] = {
    "usage_limit_exceeded": (Failure.REFUSED, _PLAN),
    "context_window_exceeded": (Failure.REFUSED, _SMALLER),
    "rate_limit_exceeded": (Failure.RATE_LIMITED, _LATER),
    "server_overloaded": (Failure.RATE_LIMITED, _LATER),
    "internal_server_error": (Failure.CRASHED, _REACH),
    "invalid_prompt": (Failure.REFUSED, _REWORD),
    "cyber_policy": (Failure.REFUSED, _REWORD),
    "unauthorized": (Failure.REFUSED, _KEY),
    "bad_request": (Failure.REFUSED, _MODEL),
}

_BY_TEXT: tuple[tuple[re.Pattern[str], _Meaning], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), meaning)
    for pattern, meaning in (
        (r"missing environment variable", (Failure.MISSING, "put the key into {variable}")),
        (r"unknown configuration field|unknown feature", (Failure.MISSING, _VERSION)),
        (r"required mcp server|mcp (server|client).*(failed|timed out)", (Failure.CRASHED, _TOOLS)),
        (r"context.length|context window", (Failure.REFUSED, _SMALLER)),
        (r"insufficient_quota|quota exceeded|usage limit", (Failure.REFUSED, _PLAN)),
        (r"invalid_api_key|status 40[13]\b", (Failure.REFUSED, _KEY)),
        (r"rate limit|status:? 429\b", (Failure.RATE_LIMITED, _LATER)),
        (r"reason: content_filter", (Failure.REFUSED, _REWORD)),
        (r"incomplete response", (Failure.BAD_OUTPUT, _SMALLER)),
        (r"status (400|404)\b|^\s*\{\s*\"error\"", (Failure.REFUSED, _MODEL)),
    )
)

_OTHERWISE: _Meaning = (Failure.CRASHED, _REACH)

_WAIT = re.compile(r"try again in (?:(\d+)m)?(?:(\d+(?:\.\d+)?)\s*(ms|s))", re.IGNORECASE)


def fault_of(message: str, reason: Any, variable: str) -> Fault:
    """The failure behind an error of Codex; `reason` is what the rollout says, `variable` holds the key."""
    failure, hint = _by_reason(reason) or _by_text(message) or _OTHERWISE
    return Fault(
        failure,
        f"Codex failed: {message.strip() or 'it did not say why'}",
        hint=hint.format(variable=variable),
        retry_after=_seconds_in(message) if failure is Failure.RATE_LIMITED else None,
    )


def _by_reason(reason: Any) -> _Meaning | None:
    if isinstance(reason, str):
        return _BY_REASON.get(reason)
    if isinstance(reason, dict):
        for detail in reason.values():
            status = detail.get("http_status_code") if isinstance(detail, dict) else None
            if isinstance(status, int):
                return _BY_STATUS.get(status)
    return None


def _by_text(message: str) -> _Meaning | None:
    return next((meaning for pattern, meaning in _BY_TEXT if pattern.search(message)), None)


def _seconds_in(message: str) -> float | None:
    found = _WAIT.search(message)
    if found is None:
        return None
    minutes, number, unit = found.groups()
    return int(minutes or 0) * 60 + float(number) / (1000 if unit.lower() == "ms" else 1)
