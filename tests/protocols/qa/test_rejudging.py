"""Judging a commit that is there already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ratchet.config import Loaded
from ratchet.engines import Session
from ratchet.judges import Candidate, Judged, first_failure
from ratchet.judges.judge import ruled
from ratchet.kernel import BudgetExceeded, Limits, Outcome
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger.artifacts import of_run
from ratchet.ledger.events import latest
from ratchet.ledger.protocols import ProtocolStep, add_protocol_steps, get_protocol_step
from ratchet.ledger.runs import get_run
from ratchet.ledger.usage import list_sessions, set_budget, total
from ratchet.modelserver import answer
from ratchet.protocols.qa import MARKDOWN, QaJudge, judge_step_commit
from ratchet.runtime import JobContext, Kinds, Worker, open_runtime, start_run
from tests.judges.reviewer import review
from tests.protocols.qa.conftest import Desk
from tests.protocols.qa.ground import SPEC, STEP, Ground
from tests.waiting import eventually


class Flow:
    """A worker whose one kind of job judges a commit."""

    def __init__(self, loaded: Loaded, ledger: Ledger, ground: Ground) -> None:
        self.ledger = ledger
        self._ground = ground
        self._ended: list[Judged | Exception] = []
        kinds = Kinds()
        kinds.add("judge", self._judge)
        self.runtime = open_runtime(loaded, ledger, kinds)
        self._worker = Worker(self.runtime)
        self._worker.start()

    def close(self) -> None:
        self._worker.stop(drain_seconds=0)

    def judged(
        self, judge: QaJudge, commit: str, limits: Limits | None = None
    ) -> tuple[int, Judged | Exception]:
        self._judge_with, self._commit = judge, commit
        with self.ledger.write() as tx:
            run_id = start_run(tx, self.runtime, "judge", kind="protocol", name="0001-demo")
            row = {"name": STEP.name, "step_index": 1, "step_type": "work", "spec": SPEC}
            [step_id] = add_protocol_steps(tx, run_id, [row])
            self._step: ProtocolStep = get_protocol_step(tx, step_id)
            if limits is not None:
                set_budget(tx, "run", run_id, limits)
        eventually(lambda: bool(self._ended))
        return run_id, self._ended.pop()

    async def _judge(self, job: JobContext) -> None:
        try:
            self._ended.append(
                await judge_step_commit(
                    job,
                    self._step,
                    self._ground.repository,
                    self._judge_with,
                    commit=self._commit,
                    base=self._ground.base,
                )
            )
        except BudgetExceeded as error:
            self._ended.append(error)


@pytest.fixture
def flow(loaded: Loaded, ledger: Ledger, ground: Ground) -> Iterator[Flow]:
    made = Flow(loaded, ledger, ground)
    yield made
    made.close()


@pytest.mark.soak
@pytest.mark.parametrize(("word", "outcome"), [("pass", Outcome.PASSED), ("fail", Outcome.FAILED)])
def test_the_verdict_and_its_evidence_are_recorded(
    flow: Flow, ground: Ground, desk: Desk, word: str, outcome: Outcome
) -> None:
    judge = ground.judge(desk.says(answer(review(word))))
    commit = ground.change({"hello.txt": "hello\n"})
    run_id, judged = flow.judged(judge, commit)
    assert isinstance(judged, Judged)
    assert judged.verdict.outcome is outcome
    with flow.ledger.read() as tx:
        stored = {each.name: each.sha256 for each in of_run(tx, run_id)}
        sessions = list_sessions(tx, run_id=run_id)
        used = total(tx, "run", run_id)
        events = latest(tx.connection, where=EventFilter(run_id=run_id), limit=50)
    assert {"qa.json", MARKDOWN, "review.json"} <= stored.keys()
    assert stored["qa.json"] == judged.verdict.report
    assert [(each.engine, each.role) for each in sessions] == [("llm", "reviewer")]
    assert used.input_tokens == judged.usage.input_tokens > 0
    [said] = [each for each in events if each.type == "qa_judged"]
    assert said.data["outcome"] == outcome


@pytest.mark.soak
def test_a_run_says_that_its_review_was_a_recording(flow: Flow, ground: Ground, desk: Desk) -> None:
    class Recorded:
        name, hash = "review", "a" * 64

        async def judge(self, _: Candidate) -> Judged:
            said = Session("replay:reviewer", text="pass", simulated=True)
            return ruled(self, Outcome.PASSED, "it passed", sessions=(said,))

    judge = replace(ground.judge(desk.says()), parts=first_failure(Recorded(), name="qa"))
    run_id, _ = flow.judged(judge, ground.change({"hello.txt": "hello\n"}))
    with flow.ledger.read() as tx:
        assert get_run(tx, run_id).used_recording


@pytest.mark.soak
def test_nothing_is_asked_when_the_budget_is_used_up(flow: Flow, ground: Ground, desk: Desk) -> None:
    judge = ground.judge(desk.says(answer(review())))
    _, refused = flow.judged(judge, ground.change({"hello.txt": "hello\n"}), Limits(tokens=0))
    assert isinstance(refused, BudgetExceeded)
    assert desk.script.requests == []


def test_the_author_of_the_judge_counts(ground: Ground, desk: Desk) -> None:
    judge = replace(ground.judge(desk.says(answer(review()))), author="llm")
    with pytest.raises(Exception, match="llm made this change"):
        ground.ask(judge, ground.change({"hello.txt": "hello\n"}))
