"""What becomes of an attempt that was not kept: mended, tried anew, shown to a person, or stopped."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ratchet.engines import Failure
from ratchet.kernel import Outcome, Verdict


class Route(StrEnum):
    FIX = "fix"
    """The findings go back to the author, who goes on from the commit that failed."""
    RETRY = "retry"
    """Nothing is wrong with the work as far as is known: try anew from the branch."""
    ESCALATE = "escalate"
    """A person has to look: nobody else may decide this."""
    BLOCK = "block"
    """Trying again changes nothing: something is missing, or used up."""


# Those that a further try may mend.
_PASSING = (Failure.RATE_LIMITED, Failure.TIMEOUT, Failure.CRASHED, Failure.BAD_OUTPUT)
_NEEDS_A_PERSON = (
    "contract.touched",
    "secrets.secrets",
    "review.unclear",
    "review.session_bad_output",
)


def route(verdict: Verdict | None, failure: Failure | None, *, fixes_done: int, fixes_allowed: int) -> Route:
    """Where an attempt that was not kept goes. `fixes_done` are the tries so far that were not the first."""
    wanted = _wanted(verdict, failure)
    if wanted in (Route.FIX, Route.RETRY) and fixes_done >= fixes_allowed:
        return Route.BLOCK
    return wanted


def _wanted(verdict: Verdict | None, failure: Failure | None) -> Route:
    if failure is not None:
        return Route.RETRY if failure in _PASSING else Route.BLOCK
    if verdict is None:
        return Route.RETRY
    measured = verdict.measurements
    if any(measured.get(name, 0.0) > 0 for name in _NEEDS_A_PERSON):
        return Route.ESCALATE
    if verdict.outcome is Outcome.FAILED:
        return Route.FIX
    if verdict.outcome is Outcome.PASSED:
        # It was passed and still not kept: the branch moved, or it was a recording that moves none.
        return Route.BLOCK if verdict.simulated else Route.RETRY
    return Route.BLOCK if _is_stuck(measured) else Route.RETRY


def _is_stuck(measured: Mapping[str, float]) -> bool:
    """Whether a judge lacks something that a further try will not bring."""
    lasting = (f"review.session_{each}" for each in Failure if each not in _PASSING)
    return any(measured.get(name, 0.0) > 0 for name in ("checks.missing", *lasting))
