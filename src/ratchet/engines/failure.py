"""How a session can fail, as a closed set of kinds."""

from __future__ import annotations

from enum import StrEnum

from ratchet.engines.session import Session
from ratchet.kernel import RatchetError


class Failure(StrEnum):
    """Why there is nothing to judge. Each kind asks for another next step."""

    MISSING = "missing"
    """The engine itself is absent, of the wrong version or badly configured, or has no key."""
    NO_ACCESS = "no_access"
    """The endpoint does not accept the key, has no such model for it, or the account is out of credit."""
    REFUSED = "refused"
    """The endpoint or the model said no to this request, and will say no again."""
    RATE_LIMITED = "rate_limited"
    """The endpoint asks to come back later."""
    TIMEOUT = "timeout"
    """The deadline passed."""
    BUDGET = "budget"
    """The tokens or the money are used up."""
    CRASHED = "crashed"
    """The engine or its connection broke."""
    BAD_OUTPUT = "bad_output"
    """It ended by itself, but what it made cannot be used."""

    @property
    def is_permanent(self) -> bool:
        """Whether every session fails so, whatever it is asked, until a person changes something."""
        return self in (Failure.MISSING, Failure.NO_ACCESS)

    @property
    def is_hopeless(self) -> bool:
        """Whether the same request would fail so again."""
        return self.is_permanent or self in (Failure.REFUSED, Failure.BUDGET)


class SessionFailed(RatchetError):
    """A session that must not be judged. What it used and said until then is in `session`."""

    http_status = 502

    def __init__(
        self,
        failure: Failure,
        message: str,
        *,
        session: Session,
        hint: str | None = None,
        retry_after: float | None = None,
        worked: bool = True,
    ) -> None:
        """`worked` is false only when the model has certainly done nothing, so that trying again repeats nothing."""
        super().__init__(message, hint=hint)
        self.failure = failure
        self.session = session
        self.retry_after = retry_after
        self.worked = worked
        self.exit_code = 3 if failure is Failure.MISSING else 1
