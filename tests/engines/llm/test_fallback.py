"""When a model does not answer, the next one is asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ratchet.engines import EventKind, Failure, Request
from ratchet.kernel import Limits
from ratchet.modelserver import Tokens, Turn, answer, cut, fail, hang, say
from tests.engines.contract import SCHEMA, fails, lines, propose
from tests.engines.llm.subject import LlmSubject
from tests.waiting import eventually_async

HI = Request("hi", deadline_seconds=30)
PRICES = """
    [llm.prices."local/scripted"]
    input = 1
    output = 1
    [llm.prices."spare/scripted"]
    input = 1000
    output = 1000
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    "turn",
    [
        fail(401),
        fail(404),
        fail(429),
        fail(500),
        fail(503),
        cut(after=3),
        hang(after=3),
        fail(429, retry_after=900),
    ],
)
def test_the_next_model_answers(llm: LlmSubject, turn: Turn) -> None:
    engine = llm.open(
        replace(turn, repeat="always"), spare=[say("hello")], option="both", llm="call_seconds = 1"
    )
    session = propose(engine, HI)
    assert (session.text, session.model) == ("hello", "spare/scripted")
    retried = [each for each in lines(session) if each["kind"] == EventKind.RETRY]
    assert retried[-1]["text"].endswith("asking spare/scripted instead")


def test_a_missing_key_falls_back(llm: LlmSubject) -> None:
    engine = llm.open(spare=[say("hello")], option="both", environment={"MODEL_KEY": ""})
    assert propose(engine, HI).model == "spare/scripted"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("turn", "request_", "failure"),
    [
        (say("x"), replace(HI, limits=Limits(tokens=50)), Failure.BUDGET),
        (Turn(text="no", repeat="always"), replace(HI, output_schema=SCHEMA), Failure.BAD_OUTPUT),
        (hang(), replace(HI, deadline_seconds=1), Failure.TIMEOUT),
    ],
)
def test_a_budget_a_deadline_or_a_bad_answer_does_not_fall_back(
    llm: LlmSubject, turn: Turn, request_: Request, failure: Failure
) -> None:
    failed = fails(llm.open(turn, spare=[say("hello")], option="both"), request_)
    assert failed.failure is failure
    assert llm.spare.requests == []


def test_a_cancelled_session_does_not_fall_back(llm: LlmSubject) -> None:
    engine = llm.open(hang(), spare=[say("hello")], option="both")

    async def run() -> None:
        task = asyncio.create_task(engine.propose(HI))
        await eventually_async(lambda: bool(llm.script.requests))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert llm.spare.requests == []


def test_the_next_model_goes_on_with_what_was_said(llm: LlmSubject) -> None:
    engine = llm.open(
        answer({"score": "high"}),
        Turn(status=500, repeat="always"),
        spare=[answer({"score": 1})],
        option="both",
    )
    session = propose(engine, replace(HI, output_schema=SCHEMA))
    assert (session.output, session.model) == ({"score": 1}, "spare/scripted")
    assert [each.speaker for each in llm.spare.requests[0].messages] == ["user", "assistant", "user"]


def test_when_none_answers_all_are_named_and_the_most_hopeful_reason_counts(llm: LlmSubject) -> None:
    engine = llm.open(fail(429, retry_after=900), spare=[fail(401)], option="both")
    failed = fails(engine, HI)
    assert (failed.failure, failed.retry_after, failed.worked) == (Failure.RATE_LIMITED, 900, False)
    assert "local/scripted is rate limited" in str(failed)
    assert "spare/scripted refused the key" in str(failed)


def test_every_call_is_paid_at_the_price_of_its_model(llm: LlmSubject) -> None:
    engine = llm.open(
        answer({"score": "high"}, usage=Tokens(100, output=10)),
        Turn(status=500, repeat="always"),
        spare=[answer({"score": 1}, usage=Tokens(200, output=20))],
        option="both",
        more=PRICES,
    )
    usage = propose(engine, replace(HI, output_schema=SCHEMA)).usage
    assert (usage.input_tokens, usage.output_tokens) == (300, 30)
    assert usage.cost_microusd == 110 * 1 + 220 * 1000
