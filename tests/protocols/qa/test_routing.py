"""What becomes of an attempt that was not kept."""

from __future__ import annotations

import pytest

from ratchet.engines import Failure
from ratchet.kernel import Outcome, Verdict
from ratchet.protocols.outcome import AttemptRoute, route


def verdict(outcome: Outcome, *, simulated: bool = False, **measured: float) -> Verdict:
    named = {name.replace("__", "."): value for name, value in measured.items()}
    return Verdict(outcome, "because", "qa", "h" * 64, measurements=named, simulated=simulated)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure.MISSING, AttemptRoute.BLOCK),
        (Failure.REFUSED, AttemptRoute.BLOCK),
        (Failure.BUDGET, AttemptRoute.BLOCK),
        (Failure.RATE_LIMITED, AttemptRoute.RETRY),
        (Failure.TIMEOUT, AttemptRoute.RETRY),
        (Failure.CRASHED, AttemptRoute.RETRY),
        (Failure.BAD_OUTPUT, AttemptRoute.RETRY),
    ],
)
def test_a_session_that_failed(failure: Failure, expected: AttemptRoute) -> None:
    assert route(None, failure, fixes_done=0, fixes_allowed=2) is expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (verdict(Outcome.FAILED, checks__missing=0.0), AttemptRoute.FIX),
        (verdict(Outcome.FAILED, contract__touched=0.0), AttemptRoute.FIX),
        (verdict(Outcome.FAILED, contract__touched=1.0), AttemptRoute.ESCALATE),
        (verdict(Outcome.FAILED, secrets__secrets=2.0), AttemptRoute.ESCALATE),
        (verdict(Outcome.ERROR, review__unclear=1.0), AttemptRoute.ESCALATE),
        (verdict(Outcome.ERROR, review__session_bad_output=1.0), AttemptRoute.ESCALATE),
        (verdict(Outcome.ERROR, checks__missing=1.0), AttemptRoute.BLOCK),
        (verdict(Outcome.ERROR, review__session_missing=1.0), AttemptRoute.BLOCK),
        (verdict(Outcome.ERROR, review__session_budget=1.0), AttemptRoute.BLOCK),
        (verdict(Outcome.ERROR, review__session_timeout=1.0), AttemptRoute.RETRY),
        (verdict(Outcome.ERROR), AttemptRoute.RETRY),
        (verdict(Outcome.PASSED), AttemptRoute.RETRY),
        (verdict(Outcome.PASSED, simulated=True), AttemptRoute.BLOCK),
        (None, AttemptRoute.RETRY),
    ],
)
def test_a_verdict_that_kept_nothing(said: Verdict | None, expected: AttemptRoute) -> None:
    assert route(said, None, fixes_done=0, fixes_allowed=2) is expected


@pytest.mark.parametrize(
    ("done", "expected"),
    [(0, AttemptRoute.FIX), (1, AttemptRoute.FIX), (2, AttemptRoute.BLOCK), (9, AttemptRoute.BLOCK)],
)
def test_fixes_come_to_an_end(done: int, expected: AttemptRoute) -> None:
    assert route(verdict(Outcome.FAILED), None, fixes_done=done, fixes_allowed=2) is expected


def test_retries_come_to_an_end_and_a_person_is_still_asked() -> None:
    assert route(None, Failure.TIMEOUT, fixes_done=2, fixes_allowed=2) is AttemptRoute.BLOCK
    touched = verdict(Outcome.FAILED, contract__touched=1.0)
    assert route(touched, None, fixes_done=2, fixes_allowed=2) is AttemptRoute.ESCALATE
