"""How a session ended, read from what the program reported last. Its exit code says nothing, nor does its "success"."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import CLINotFoundError, ResultMessage

from ratchet.engines.endpoint_errors import Cause, SettingNames, cause_of, failure_of
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault

_WORDS = {
    Cause.KEY: "the endpoint refuses the key",
    Cause.CREDIT: "the account has no credit left",
    Cause.MODEL: "the endpoint does not have the model",
    Cause.LATER: "the endpoint asks to come back later",
    Cause.DOWN: "the session broke off",
}
_BUDGET = {
    "error_max_turns": "raise engines.claude.max_turns, or ask for less in one session",
    "error_max_budget_usd": "raise the budget, or ask for less in one session",
}


def check_ending(result: ResultMessage, *, names: SettingNames, retry_after: float | None) -> None:
    """Nothing if the session ended well. Raises `Fault` otherwise."""
    told = "; ".join(result.errors or []) or (result.result or "").strip() or result.subtype
    if result.subtype in _BUDGET:
        raise Fault(Failure.BUDGET, f"the session was stopped: {told}", hint=_BUDGET[result.subtype])
    if result.subtype == "error_max_structured_output_retries":
        raise Fault(Failure.BAD_OUTPUT, told, hint="make the schema simpler, or the prompt clearer about it")
    if result.stop_reason == "refusal":
        raise Fault(Failure.REFUSED, f"the model refuses: {told}", hint="change the prompt or the model")
    if not result.is_error and result.subtype == "success":
        return
    raise _failed(result, told, names, retry_after)


def crashed(error: Exception, stderr: str) -> Fault:
    """The program broke off, or could not be understood."""
    if isinstance(error, CLINotFoundError):
        return Fault(Failure.MISSING, str(error), hint="run `ratchet engine check claude`")
    last = [line for line in stderr.splitlines() if not line.startswith("[claude-code:")]
    detail = "\n".join(last[-5:]) or str(error)
    return Fault(
        Failure.CRASHED,
        f"the Claude CLI broke off: {detail}",
        hint="run `ratchet engine check claude`, and see the session's transcript",
    )


def _failed(result: ResultMessage, told: str, names: SettingNames, retry_after: float | None) -> Fault:
    status: Any = result.api_error_status
    if status is None and told.startswith("Not logged in"):
        return Fault(Failure.MISSING, "the Claude CLI has no key", hint=f"set the variable {names.key}")
    cause = cause_of(status, told) or Cause.DOWN
    failure = failure_of(cause)
    answered = f" ({status})" if status is not None else ""
    return Fault(
        failure,
        f"{_WORDS.get(cause, 'the endpoint refuses the request')}{answered}: {told}",
        hint=names.hint(cause),
        retry_after=retry_after if failure is Failure.RATE_LIMITED else None,
    )
