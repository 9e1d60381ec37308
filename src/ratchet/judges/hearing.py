"""Asking a judge so that there is always an answer, and never a good one by accident."""

from __future__ import annotations

import math

from ratchet.judges.judge import Candidate, Judge, Judged, ruled
from ratchet.kernel import LedgerError, Misuse, Outcome, Superseded, Verdict
from ratchet.observe.logs import logger

_log = logger(__name__)


async def hear(judge: Judge, candidate: Candidate) -> Judged:
    """What `judge` says of `candidate`; a judge that breaks down says `error`.

    Three things are not for a verdict and are raised: the judge was set up wrongly, the job was taken over, and the
    ledger cannot be written.
    """
    try:
        judged = await judge.judge(candidate)
    except (Misuse, Superseded, LedgerError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the candidate was not judged
        _log.warning("a judge broke down", judge=judge.name, exc_info=True)
        return ruled(judge, Outcome.ERROR, f"the judge broke down: {type(error).__name__}: {error}")
    return _checked(judge, judged)


def _checked(judge: Judge, judged: object) -> Judged:
    """Judges may come from anywhere. One that does not sign its verdict, or whose numbers are none, gave none."""
    if isinstance(judged, Judged) and _holds(judge, judged.verdict):
        return judged
    sessions = judged.sessions if isinstance(judged, Judged) else ()
    shown = str(getattr(judged, "verdict", judged))[:200]
    return ruled(
        judge, Outcome.ERROR, f"the judge's answer is no verdict of its own: {shown!r}", sessions=sessions
    )


def _holds(judge: Judge, verdict: object) -> bool:
    if not isinstance(verdict, Verdict) or not isinstance(verdict.outcome, Outcome):
        return False
    scores = [] if verdict.score is None else [verdict.score]
    numbers = [*scores, *verdict.samples, *verdict.measurements.values()]
    return verdict.judge_hash == judge.hash and all(math.isfinite(number) for number in numbers)
