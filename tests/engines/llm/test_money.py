"""What a session costs, and that it keeps to its budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.config.engine_settings import Prices
from ratchet.engines import EventKind, Failure, Request
from ratchet.engines.providers import cost_microusd, price_of
from ratchet.kernel import Limits, Usage
from ratchet.modelserver import ModelServer, Tokens, Turn, answer, cut, say
from tests.engines.conftest import Place
from tests.engines.contract import SCHEMA, fails, lines, propose
from tests.engines.llm.subject import LlmSubject

HI = Request("hi", deadline_seconds=30)
PRICES = "[llm.prices.scripted]\ninput = 1.25\ncached = 0.125\noutput = 10\n"


@pytest.mark.parametrize(
    ("price", "usage", "cost"),
    [
        (Prices(input=1.25, output=10), Usage(1000, 0, 100), 1250 + 1000),
        (Prices(input=1.25, cached=0.125, output=10), Usage(1000, 800, 100), 250 + 100 + 1000),
        (Prices(input=1.25, output=10), Usage(1000, 800, 100), 1250 + 1000),
        (Prices(input=0.15, output=0), Usage(100, 0, 0), 15),
        (Prices(input=0.1, output=0), Usage(1, 0, 0), 1),
        (Prices(input=0, output=0), Usage(1000, 0, 100), 0),
    ],
)
def test_a_price_is_for_a_million_tokens_and_part_of_a_millionth_counts_whole(
    price: Prices, usage: Usage, cost: int
) -> None:
    assert cost_microusd(usage, price) == cost


def test_the_public_list_prices_what_the_settings_do_not() -> None:
    listed = price_of("gpt-5", {}, url="https://api.openai.com/v1")
    assert listed == Prices(input=1.25, cached=0.125, output=10)
    own = {"gpt-5": Prices(input=1, output=2), "mine/gpt-5": Prices(input=3, output=4)}
    assert price_of("gpt-5", own) == own["gpt-5"]
    assert price_of("gpt-5", own, place="mine") == own["mine/gpt-5"]
    assert price_of("openai/gpt-5", {}) == listed, "as agents of several providers name it"
    assert price_of("no-such-model", {}, url="https://api.openai.com/v1") is None


def test_a_model_that_is_asked_without_a_key_costs_nothing_unless_its_maker_sells_it() -> None:
    free = Prices(input=0, output=0)
    assert price_of("no-such-model", {}, url="http://127.0.0.1:1234/v1", keyless=True) == free
    assert price_of("deepseek-r1", {}, url="http://127.0.0.1:11434/v1", keyless=True) == free
    assert price_of("gpt-oss:20b", {}, place="ollama", keyless=True) == free
    assert price_of("gpt-5", {}, url="http://127.0.0.1:4000/v1", keyless=True) == price_of("gpt-5", {})
    own = {"no-such-model": Prices(input=1, output=2)}
    assert price_of("no-such-model", own, keyless=True) == own["no-such-model"]


def test_a_large_request_costs_what_large_requests_cost() -> None:
    small, large = (price_of("gpt-5.5", {}, request_tokens=tokens) for tokens in (272_000, 272_001))
    assert small is not None
    assert large is not None
    assert (small.input, large.input) == (5, 10)


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_the_cost_comes_from_what_the_endpoint_says(
    place: Place, model_server: ModelServer, kind: str
) -> None:
    llm = LlmSubject(place, model_server, kind)
    engine = llm.open(say("hello", usage=Tokens(input=1000, cached=800, output=100)), more=PRICES)
    usage = propose(engine, HI).usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (1000, 800, 100)
    assert usage.cost_microusd == 250 + 100 + 1000


def test_repairs_are_paid_too(llm: LlmSubject) -> None:
    engine = llm.open(answer({}), answer({"score": 1}), more=PRICES)
    assert propose(engine, replace(HI, output_schema=SCHEMA)).usage.cost_microusd == 2 * (125 + 100)


def test_a_call_that_broke_off_is_paid_as_far_as_it_is_known(place: Place, model_server: ModelServer) -> None:
    llm = LlmSubject(place, model_server, "anthropic")
    usage = propose(llm.open(cut(after=3), say("hello"), more=PRICES), HI).usage
    assert (usage.input_tokens, usage.output_tokens) == (200, 11)


def test_an_unknown_price_is_said(llm: LlmSubject) -> None:
    session = propose(llm.open(say("hello")), HI)
    assert (session.usage.cost_microusd, session.usage.unpriced_tokens) == (0, session.usage.tokens)
    assert session.usage.whole_cost_usd is None
    assert session.data["price_unknown"] == ["local/scripted"]
    notes = [each["text"] for each in lines(session) if each["kind"] == EventKind.NOTE]
    assert notes == ["the price of local/scripted is unknown, so what its calls cost is unknown too"]


def test_a_budget_of_money_needs_the_price_of_every_model_before_the_first_call(llm: LlmSubject) -> None:
    prices = '[llm.prices."local/scripted"]\ninput = 1\noutput = 1\n'
    engine = llm.open(say("hello"), option="both", more=prices)
    failed = fails(engine, replace(HI, limits=Limits(cost_usd=1)))
    assert (failed.failure, failed.worked) == (Failure.MISSING, False)
    assert "the price of spare/scripted is not known" in str(failed)
    assert llm.script.requests == []


def test_a_price_of_nothing_is_known(llm: LlmSubject) -> None:
    engine = llm.open(say("hello"), more="[llm.prices.scripted]\ninput = 0\noutput = 0\n")
    session = propose(engine, replace(HI, limits=Limits(cost_usd=1)))
    assert "price_unknown" not in session.data


@pytest.mark.parametrize("limits", [Limits(tokens=109), Limits(cost_usd=0.000224)])
def test_going_over_the_budget_fails_with_what_was_used(llm: LlmSubject, limits: Limits) -> None:
    failed = fails(llm.open(say("hello"), more=PRICES), replace(HI, limits=limits))
    assert (failed.failure, failed.worked) == (Failure.BUDGET, True)
    assert (failed.session.usage.tokens, failed.session.usage.cost_microusd) == (110, 225)


@pytest.mark.soak
@pytest.mark.parametrize("limits", [Limits(tokens=110), Limits(cost_usd=0.000225)])
def test_a_budget_may_be_used_up_but_not_begun_when_it_is(llm: LlmSubject, limits: Limits) -> None:
    assert propose(llm.open(say("hello"), more=PRICES), replace(HI, limits=limits)).text == "hello"
    engine = llm.open(answer({}), answer({"score": 1}), more=PRICES)
    failed = fails(engine, replace(HI, limits=limits, output_schema=SCHEMA))
    assert failed.failure is Failure.BUDGET
    assert len(llm.script.requests) == 1


@pytest.mark.parametrize("limits", [Limits(tokens=0), Limits(cost_usd=0)])
def test_with_nothing_left_nothing_is_sent(llm: LlmSubject, limits: Limits) -> None:
    failed = fails(llm.open(say("hello"), more=PRICES), replace(HI, limits=limits))
    assert (failed.failure, failed.worked) == (Failure.BUDGET, False)
    assert llm.script.requests == []


@pytest.mark.parametrize(("limits", "most"), [(Limits(tokens=500), 500), (Limits(cost_usd=0.002), 200)])
def test_the_endpoint_is_told_how_much_may_be_said(llm: LlmSubject, limits: Limits, most: int) -> None:
    propose(llm.open(say("hello"), more=PRICES), replace(HI, limits=limits))
    body = llm.script.requests[0].body
    assert body.get("max_tokens", body.get("max_completion_tokens")) == most


def test_an_answer_that_the_budget_cut_is_a_matter_of_the_budget(llm: LlmSubject) -> None:
    turn = Turn(text="Once upon", ended="length", usage=Tokens(input=100, output=50))
    failed = fails(llm.open(turn), replace(HI, limits=Limits(tokens=150)))
    assert failed.failure is Failure.BUDGET


# What no call can have used says nothing either.
UNKNOWN = [None, Tokens(input=0, output=0), Tokens(input=10**30, output=1)]


@pytest.mark.parametrize("used", UNKNOWN)
def test_of_an_endpoint_that_does_not_say_what_it_used_the_cost_is_unknown(
    llm: LlmSubject, used: Tokens | None
) -> None:
    session = propose(llm.open(say("hello", usage=used), more=PRICES), HI)
    assert "does not say what this call used" in session.transcript.decode()
    assert (session.usage.cost_microusd, session.usage.unpriced_tokens > 0) == (0, True)


@pytest.mark.parametrize("used", UNKNOWN)
def test_an_endpoint_that_does_not_say_what_it_used_has_no_budget(
    llm: LlmSubject, used: Tokens | None
) -> None:
    failed = fails(llm.open(say("hello", usage=used)), replace(HI, limits=Limits(tokens=1000)))
    assert (failed.failure, failed.worked) == (Failure.BUDGET, True)
    assert "does not say what a call used" in str(failed)


def test_a_wall_time_budget_ends_it_as_a_budget(llm: LlmSubject) -> None:
    turn = replace(say("hello"), delay_seconds=120)
    failed = fails(llm.open(turn), replace(HI, limits=Limits(wall_seconds=4)))
    assert failed.failure is Failure.BUDGET
    assert "4 seconds of wall time" in str(failed)
