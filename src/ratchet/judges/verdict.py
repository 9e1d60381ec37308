"""A judge that has the change reviewed by an engine that did not make it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ratchet.engines import Engine, Failure, Request, Session, SessionFailed
from ratchet.engines.run import propose
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.judge import Candidate, Judged, Report, ruled
from ratchet.judges.review import SCHEMA, NoReview, Review, make_prompt, read_review
from ratchet.judges.scratch import copied, scratch
from ratchet.kernel import Misuse, Outcome

INSTRUCTIONS = (
    "You are the quality gate. Pass the change only if it does what was asked for, completely and correctly, "
    "and breaks nothing. When in doubt, fail it and say why."
)


@dataclass(frozen=True, kw_only=True)
class VerdictJudge:
    """Passes what the reviewer passes without a blocker. No review, an unclear one or a crash is an error.

    The reviewer must not be the author, unless `allow_author` says so. One that works on files is given a copy of the
    candidate; one that does not sees the diff alone, which must then fit into `max_diff` characters.
    """

    engine: Engine
    instructions: str = INSTRUCTIONS
    model: str | None = None
    allow_author: bool = False
    max_diff: int = 400_000
    deadline_seconds: float = 1800.0
    tries: int = 3
    name: str = "verdict"

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "verdict 1",
            engine=self.engine.name,
            model=self.model,
            # The whole prompt but for what the candidate puts into it.
            prompt=make_prompt(self.instructions, _NOBODY, has_files=self.engine.capabilities.edits_files),
            schema=SCHEMA,
            allow_author=self.allow_author,
            max_diff=self.max_diff,
            deadline_seconds=self.deadline_seconds,
        )

    async def judge(self, candidate: Candidate) -> Judged:
        if candidate.author == self.engine.name and not self.allow_author:
            raise Misuse(
                f"the engine {self.engine.name} made this change, so it cannot review it",
                hint="name another engine for the review, or allow the author to review its own work",
            )
        if len(candidate.diff) > self.max_diff:
            reason = f"the diff has {len(candidate.diff)} characters; the reviewer is shown at most {self.max_diff}"
            return ruled(self, Outcome.ERROR, reason)
        if not candidate.diff.strip() and not self.engine.capabilities.edits_files:
            return ruled(self, Outcome.ERROR, "there is no diff to show to the reviewer, which sees no files")
        async with scratch() as place:
            workspace = None
            if self.engine.capabilities.edits_files:
                workspace = await copied(candidate.directory, place / "candidate")
            return await self._reviewed(candidate, workspace)

    async def _reviewed(self, candidate: Candidate, workspace: Path | None) -> Judged:
        request = self._request(candidate, workspace)
        try:
            session = await propose(self.engine, request, tries=self.tries)
        except SessionFailed as failed:
            # It said something that does not fit the form: it may still be a plain word.
            if failed.failure is not Failure.BAD_OUTPUT or not failed.session.text:
                measured = {f"session_{failed.failure}": 1.0}
                return ruled(
                    self,
                    Outcome.ERROR,
                    f"no review: {failed}",
                    sessions=(failed.session,),
                    measurements=measured,
                )
            session = failed.session
        try:
            review = read_review(session.output, session.text, candidate)
        except NoReview as problem:
            return self._ruled(Outcome.ERROR, str(problem), request, session, None)
        if review.word == "pass" and review.blockers:
            told = f"the reviewer said pass, but found a blocker: {review.blockers[0]['message']}"
            return self._ruled(Outcome.FAILED, told, request, session, review)
        outcome = Outcome.PASSED if review.word == "pass" else Outcome.FAILED
        return self._ruled(outcome, review.summary or review.word, request, session, review)

    def _request(self, candidate: Candidate, workspace: Path | None) -> Request:
        left = candidate.deadline_seconds
        return Request(
            make_prompt(self.instructions, candidate, has_files=workspace is not None),
            workspace=workspace,
            model=self.model,
            output_schema=SCHEMA if self.engine.capabilities.structured_output else None,
            deadline_seconds=self.deadline_seconds if left is None else min(left, self.deadline_seconds),
            limits=candidate.limits,
            listen=candidate.listen,
        )

    def _ruled(
        self, outcome: Outcome, reason: str, request: Request, session: Session, review: Review | None
    ) -> Judged:
        report = {
            "engine": session.engine,
            "model": session.model,
            "simulated": session.simulated,
            "verdict": None if review is None else review.word,
            "structured": None if review is None else review.structured,
            "summary": None if review is None else review.summary,
            "findings": [] if review is None else review.findings,
            "text": session.text,
            "prompt": request.prompt,
        }
        return ruled(
            self,
            outcome,
            reason,
            report=Report(f"{self.name}.json", json.dumps(report).encode()),
            measurements=_counts(review),
            sessions=(session,),
        )


def _counts(review: Review | None) -> dict[str, float]:
    if review is None:
        return {"unclear": 1.0}
    severities = [each["severity"] for each in review.findings]
    counted = {f"{each}s": float(severities.count(each)) for each in ("blocker", "major", "minor", "note")}
    return {"findings": float(len(severities)), **counted}


_NOBODY = Candidate("", "", Path(), "")
