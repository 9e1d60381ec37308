"""What went wrong with one call, in the closed set of kinds that a session can fail with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.engines.endpoint import Cause, cause_of, failure_of
from ratchet.engines.engine import Failure, Fault
from ratchet.engines.llm.choice import ModelCandidate
from ratchet.kernel import shortened

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError

_SHOWN = 500
_TOLD = {
    Cause.KEY: "refused the key",
    Cause.CREDIT: "has no credit left for this key",
    Cause.MODEL: "is not there",
}


class CallFault(Fault):
    """A call, or the whole session, cannot continue."""

    def __init__(
        self,
        failure: Failure,
        message: str,
        *,
        hint: str | None = None,
        retry_after: float | None = None,
        worked: bool = True,
        again: bool = False,
    ) -> None:
        """`again` says that the same call may succeed a little later; `worked` is as in `SessionFailed`."""
        super().__init__(failure, message, hint=hint, retry_after=retry_after)
        self.worked = worked
        self.again = again

    @property
    def allows_fallback(self) -> bool:
        """Another model may do better, unless the budget is ours or the answer was heard and is no good."""
        return self.failure not in (Failure.BUDGET, Failure.BAD_OUTPUT)


def fault_of(error: Exception, candidate: ModelCandidate) -> CallFault:
    """What `error`, raised by the library during a call of `candidate`, means."""
    from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior, UserError

    name = candidate.name
    if isinstance(error, ModelAPIError):
        return _api_fault(error, candidate)
    if isinstance(error, UnexpectedModelBehavior):
        return CallFault(
            Failure.CRASHED,
            f"{name} ended its answer without saying anything",
            hint=f"look whether {candidate.url} speaks the protocol {candidate.endpoint.kind}",
            again=True,
        )
    if isinstance(error, UserError):
        return CallFault(Failure.REFUSED, f"{name} cannot be asked this: {_cut(str(error))}", worked=False)
    if isinstance(error, ImportError):
        return CallFault(
            Failure.MISSING,
            f"{name} needs a package that is absent: {error}",
            hint="install Ratchet's dependencies again",
            worked=False,
        )
    # A hostile or broken endpoint can make a client stumble anywhere.
    return CallFault(
        Failure.CRASHED, f"{name} answered what cannot be read: {type(error).__name__}: {_cut(str(error))}"
    )


def _api_fault(error: ModelAPIError, candidate: ModelCandidate) -> CallFault:
    from pydantic_ai import exceptions as raised

    name, said = candidate.name, _said(error)
    if (cause := _no_access(error)) is not None:
        return CallFault(
            failure_of(cause),
            f"{name} {_TOLD[cause]}: {said}",
            hint=candidate.names.hint(cause),
            worked=False,
        )
    match error:
        case raised.ModelRateLimitError():
            return CallFault(
                Failure.RATE_LIMITED,
                f"{name} is rate limited: {said}",
                hint="wait, or lower requests_per_minute of the endpoint",
                retry_after=_retry_after(error),
                worked=error.in_stream,
                again=True,
            )
        case raised.ModelContextWindowExceededError():
            hint = "shorten the prompt, or use a model with a larger context"
            return CallFault(Failure.REFUSED, f"{name} cannot take so much: {said}", hint=hint, worked=False)
        case raised.ModelRequestRejectedError():
            return CallFault(Failure.REFUSED, f"{name} refused the request: {said}", worked=False)
        case raised.ModelConnectionError():
            return _connection_fault(error, candidate, said)
        case raised.ModelUnavailableError():
            return CallFault(
                Failure.CRASHED,
                f"{name} is unavailable: {said}",
                retry_after=_retry_after(error),
                worked=error.in_stream,
                again=True,
            )
    if _is_redirect(error):
        hint = "set base_url to where it points; a key is not sent after a redirect"
        return CallFault(Failure.REFUSED, f"{name} redirects elsewhere: {said}", hint=hint, worked=False)
    return CallFault(Failure.CRASHED, f"{name} failed: {said}", retry_after=_retry_after(error), again=True)


def _connection_fault(error: ModelAPIError, candidate: ModelCandidate, said: str) -> CallFault:
    from pydantic_ai.exceptions import ModelTimeoutError

    reached = getattr(error, "phase", None) not in ("connect", "pool")
    if isinstance(error, ModelTimeoutError) and reached:
        return CallFault(
            Failure.TIMEOUT, f"{candidate.name} fell silent: {said}", hint="raise llm.call_seconds"
        )
    if reached:
        return CallFault(Failure.CRASHED, f"{candidate.name} broke off: {said}", again=True)
    return CallFault(
        Failure.CRASHED,
        f"{candidate.name} cannot be reached at {candidate.url}: {said}",
        hint=candidate.names.hint(Cause.DOWN),
        worked=False,
        again=True,
    )


def _no_access(error: ModelAPIError) -> Cause | None:
    """Why no request at all would be accepted, if that is so. Providers differ in the status with which they say it."""
    from pydantic_ai import exceptions as raised

    match error:
        case raised.ModelAuthenticationError():
            return Cause.KEY
        case raised.ModelQuotaExceededError():
            return Cause.CREDIT
        case raised.ModelNotFoundError():
            return Cause.MODEL
        case raised.ModelHTTPError(status_code=status):
            cause = cause_of(status, _said(error))
            return cause if cause is not None and failure_of(cause).is_permanent else None
    return None


def _said(error: ModelAPIError) -> str:
    """The endpoint's own words, without the wrapping of the library."""
    from pydantic_ai.exceptions import ModelHTTPError

    body = error.body
    for key in ("error", "message"):
        if isinstance(body, dict) and key in body:
            body = body[key]
    words = body if isinstance(body, str) and body else error.message if body is None else str(body)
    status = f"HTTP {error.status_code}: " if isinstance(error, ModelHTTPError) else ""
    return status + _cut(words)


def _retry_after(error: ModelAPIError) -> float | None:
    """The pause that was asked for; the library reads whole seconds only."""
    if error.retry_after is not None:
        return error.retry_after
    header = (getattr(error, "headers", None) or {}).get("retry-after", "")
    try:
        seconds = float(header)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _is_redirect(error: ModelAPIError) -> bool:
    status = getattr(error.__cause__, "status_code", None)
    return isinstance(status, int) and 300 <= status < 400


def _cut(text: str) -> str:
    return shortened(text, _SHOWN)
