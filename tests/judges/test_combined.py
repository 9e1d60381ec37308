"""Several judges as one."""

from __future__ import annotations

import asyncio
import json

import pytest

from ratchet.engines import Request
from ratchet.judges import Candidate, Judge, Judged, Report, all_of, first_failure, hear
from ratchet.judges.judge import ruled
from ratchet.kernel import Misuse, Outcome, Superseded, Verdict
from tests.judges.conftest import MakeCandidate, ask
from tests.judges.reviewer import Reviewer
from tests.waiting import PATIENCE_SECONDS, eventually_async

PASSED, FAILED, ERROR = Outcome


class Fixed:
    """A judge that has made up its mind."""

    def __init__(
        self,
        name: str,
        outcome: Outcome | Exception = PASSED,
        *,
        seconds: float = 0,
        score: float | None = None,
    ) -> None:
        self.name = name
        self.hash = f"hash of {name}"
        self.outcome = outcome
        self.seconds = seconds
        self.score = score
        self.asked: list[Candidate] = []

    async def judge(self, candidate: Candidate) -> Judged:
        self.asked.append(candidate)
        await asyncio.sleep(self.seconds)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return ruled(
            self,
            self.outcome,
            f"{self.name} says {self.outcome}",
            report=Report(f"{self.name}.txt", self.name.encode(), "text/plain"),
            measurements={"time": 1.0},
            score=self.score,
            samples=() if self.score is None else (self.score,),
        )


@pytest.mark.parametrize(
    ("outcomes", "worst"),
    [
        ([PASSED, PASSED], PASSED),
        ([PASSED, FAILED], FAILED),
        ([FAILED, ERROR], ERROR),
        ([ERROR, PASSED], ERROR),
        ([PASSED, RuntimeError("broken")], ERROR),
    ],
)
def test_all_are_asked_and_the_worst_outcome_counts(
    make_candidate: MakeCandidate, outcomes: list[Outcome], worst: Outcome
) -> None:
    judges = [Fixed(f"j{index}", outcome) for index, outcome in enumerate(outcomes)]
    judged = ask(all_of(*judges), make_candidate())
    assert judged.verdict.outcome is worst
    assert [len(each.asked) for each in judges] == [1, 1]
    assert "j0.time" in judged.verdict.measurements or outcomes[0] is ERROR


def test_reports_and_reasons_of_all_are_kept(make_candidate: MakeCandidate) -> None:
    judged = ask(all_of(Fixed("a"), Fixed("b", FAILED), Fixed("c", ERROR)), make_candidate())
    assert judged.verdict.reason == "b: b says failed; c: c says error"
    assert [report.name for report in judged.reports] == ["all of.json", "a.txt", "b.txt", "c.txt"]
    listed = json.loads(judged.reports[0].content)
    assert [each["report"] for each in listed] == [report.sha256 for report in judged.reports[1:]]
    assert judged.verdict.report == judged.reports[0].sha256
    assert judged.verdict.measurements == {"a.time": 1.0, "b.time": 1.0, "c.time": 1.0}


def test_all_are_asked_at_the_same_time(make_candidate: MakeCandidate) -> None:
    class Meeting(Fixed):
        """Passes once the other is there as well."""

        async def judge(self, candidate: Candidate) -> Judged:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await barrier.wait()
            return await super().judge(candidate)

    barrier = asyncio.Barrier(2)
    assert ask(all_of(Meeting("a"), Meeting("b")), make_candidate()).verdict.passed


def test_the_first_that_does_not_pass_is_the_last_to_be_asked(make_candidate: MakeCandidate) -> None:
    judges = [Fixed("a"), Fixed("b", FAILED), Fixed("c")]
    verdict = ask(first_failure(*judges), make_candidate()).verdict
    assert (verdict.outcome, verdict.reason) == (FAILED, "b: b says failed")
    assert [len(each.asked) for each in judges] == [1, 1, 0]
    assert ask(first_failure(Fixed("a"), Fixed("b")), make_candidate()).verdict.passed


def test_each_is_told_what_time_is_left(make_candidate: MakeCandidate) -> None:
    judges = [Fixed("a", seconds=0.2), Fixed("b")]
    ask(first_failure(*judges), make_candidate(deadline_seconds=5.0))
    first, second = (each.asked[0].deadline_seconds or 0 for each in judges)
    assert second <= first - 0.2


def test_the_score_of_the_only_one_that_measures_is_the_score_of_all(make_candidate: MakeCandidate) -> None:
    one = ask(first_failure(Fixed("a"), Fixed("b", score=3.5)), make_candidate()).verdict
    assert (one.score, one.samples, one.measurements["b.score"]) == (3.5, (3.5,), 3.5)
    two = ask(all_of(Fixed("a", score=1.0), Fixed("b", score=3.5)), make_candidate()).verdict
    assert (two.score, two.samples) == (None, ())


def test_a_recording_in_one_of_them_marks_the_whole(make_candidate: MakeCandidate) -> None:
    class Recorded(Fixed):
        async def judge(self, candidate: Candidate) -> Judged:
            session = await Reviewer(simulated=True).propose(Request("look"))
            return ruled(self, PASSED, "replayed", sessions=(session,))

    judged = ask(first_failure(Fixed("a"), all_of(Recorded("b"))), make_candidate())
    assert judged.verdict.simulated
    assert judged.usage.input_tokens == 100


@pytest.mark.parametrize("error", [Misuse("set up wrongly"), Superseded("taken over")])
@pytest.mark.parametrize("combine", [all_of, first_failure])
def test_what_is_not_for_a_verdict_goes_on(
    make_candidate: MakeCandidate, combine: object, error: Exception
) -> None:
    with pytest.raises(type(error)):
        ask(combine(Fixed("a"), Fixed("b", error)), make_candidate())  # type: ignore[operator]


def test_nothing_to_ask_and_one_name_for_two_are_misuse() -> None:
    for combine in (all_of, first_failure):
        with pytest.raises(Misuse, match="no judges"):
            combine()
        with pytest.raises(Misuse, match="called 'a'"):
            combine(Fixed("a"), Fixed("a"))


def test_the_hash_covers_the_judges_and_their_order() -> None:
    a, b = Fixed("a"), Fixed("b")
    assert len({all_of(a).hash, all_of(a, b).hash, all_of(b, a).hash, first_failure(a, b).hash}) == 4


NOT_ANSWERS: list[object] = [
    None,
    "passed",
    Judged(None),  # type: ignore[arg-type]
    Judged(Verdict(PASSED, "", "x", "another hash")),
    Judged(Verdict("passed", "", "strange", "hash of strange")),  # type: ignore[arg-type]
    Judged(Verdict(PASSED, "", "strange", "hash of strange", score=float("nan"))),
    Judged(Verdict(PASSED, "", "strange", "hash of strange", measurements={"a": float("inf")})),
]


@pytest.mark.parametrize("answer", NOT_ANSWERS, ids=str)
def test_a_judge_that_does_not_answer_with_a_verdict_of_its_own_is_an_error(
    make_candidate: MakeCandidate, answer: Judged
) -> None:
    class Strange(Fixed):
        async def judge(self, candidate: Candidate) -> Judged:
            return answer

    verdict = ask(Strange("strange"), make_candidate()).verdict
    assert (verdict.outcome, verdict.judge) == (ERROR, "strange")


def test_cancelling_reaches_every_judge(make_candidate: MakeCandidate) -> None:
    begun: list[str] = []
    ended: list[str] = []

    class Slow(Fixed):
        async def judge(self, candidate: Candidate) -> Judged:
            begun.append(self.name)
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(self.name)
            raise AssertionError

    async def cancelled(judge: Judge) -> None:
        task = asyncio.create_task(hear(judge, make_candidate()))
        await eventually_async(lambda: len(begun) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled(all_of(Slow("a"), first_failure(Slow("b"), name="inner"))))
    assert sorted(ended) == ["a", "b"]
