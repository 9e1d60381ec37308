"""The seam to whatever decides, what it is shown, and what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ratchet.engines import Session, SessionEvent
from ratchet.engines.engine import unheard
from ratchet.kernel import Limits, Outcome, Usage, Verdict


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is judged: a commit, checked out afresh into a directory that its author never wrote.

    No judge changes `directory`: one that lets others write takes a copy of its own, so that several may look at once.
    `prompt` is what was asked for. `deadline_seconds` is the time that the attempt
    has left and `limits` its budget. `finished` holds the verdicts of judges that were asked before this one, by their
    hash.
    """

    commit: str
    base: str
    directory: Path
    author: str
    run_id: int | None = None
    attempt_id: int | None = None
    prompt: str = ""
    read_diff: Callable[[], str] = field(default=str, compare=False)
    deadline_seconds: float | None = None
    limits: Limits = field(default_factory=Limits)
    listen: Callable[[SessionEvent], None] = field(default=unheard, compare=False)
    finished: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def diff(self) -> str:
        """What changed since `base`. Worked out when it is looked at: most judges never do."""
        return self.read_diff()


@dataclass(frozen=True, slots=True)
class Report:
    """Evidence for the artifact store. Its address there is known before it is stored."""

    name: str
    content: bytes
    media_type: str = "application/json"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with everything that is to be recorded beside it.

    `verdict.report` is the address of one of `reports`, so they can be stored before it or after it. `found` is what
    keeping the candidate takes besides the verdict, such as what its checks have read.
    """

    verdict: Verdict
    reports: tuple[Report, ...] = ()
    sessions: tuple[Session, ...] = ()
    found: Mapping[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> tuple[float, ...]:
        return self.verdict.samples

    @property
    def usage(self) -> Usage:
        return sum((session.usage for session in self.sessions), Usage())


class Judge(Protocol):
    """Decides. Whatever a candidate does, it gets a verdict: an exception is for mistakes in the set-up."""

    @property
    def name(self) -> str: ...

    @property
    def hash(self) -> str:
        """A SHA-256 over everything that decides: command lines, evaluator, prompt, schema, thresholds."""
        ...

    async def judge(self, candidate: Candidate) -> Judged:
        """Raises `Misuse` for a candidate that this judge may never judge."""
        ...


def ruled(
    judge: Judge,
    outcome: Outcome,
    reason: str,
    *,
    report: Report | None = None,
    score: float | None = None,
    measurements: Mapping[str, float] | None = None,
    sessions: tuple[Session, ...] = (),
    samples: tuple[float, ...] = (),
) -> Judged:
    """The verdict of `judge`, put together. It is simulated when any of its sessions was."""
    verdict = Verdict(
        outcome,
        reason,
        judge.name,
        judge.hash,
        score=score,
        measurements=measurements or {},
        report=None if report is None else report.sha256,
        simulated=any(session.simulated for session in sessions),
        samples=samples,
    )
    return Judged(verdict, () if report is None else (report,), sessions)
