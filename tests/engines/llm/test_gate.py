"""An endpoint is not asked more often, or by more at once, than it is told."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ratchet.config.engine_settings import EndpointSettings
from ratchet.engines import Failure, Request
from ratchet.engines.llm.connection import Closed, Gate, gate_of
from ratchet.modelserver import Turn, hang, say
from tests.engines.contract import fails, propose
from tests.engines.llm.subject import LlmSubject
from tests.waiting import eventually_async

SLOW = Turn(text="hello", delay_seconds=0.3, repeat="always")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def passes(gate: Gate, patience: float = 1000) -> bool:
    """Whether somebody gets through at once."""
    try:
        async with asyncio.timeout(0.05), gate.passing(patience):
            return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("most", [1, 3])
def test_only_so_many_calls_are_open_at_once(llm: LlmSubject, most: int) -> None:
    engine = llm.open(Turn(text="x", hang_after=0, repeat="always"), endpoint=f"concurrency = {most}")

    async def run() -> None:
        tasks = [asyncio.create_task(engine.propose(Request("hi"))) for _ in range(4)]
        await eventually_async(lambda: len(llm.script.requests) == most)
        await asyncio.sleep(0.2)
        assert len(llm.script.requests) == most
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.soak
def test_several_engines_and_threads_share_one_gate(llm: LlmSubject) -> None:
    engine = llm.open(SLOW, endpoint="concurrency = 1")
    propose(engine, Request("warm up"))
    other = llm.at(llm.url, endpoint="concurrency = 1")
    began = time.monotonic()
    threads = [
        threading.Thread(target=propose, args=(each, Request("hi"))) for each in (engine, other) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began > 4 * 0.3


def test_who_waits_longer_than_the_deadline_has_timed_out_and_sent_nothing(llm: LlmSubject) -> None:
    engine = llm.open(hang(), say("never"), endpoint="concurrency = 1")

    async def run() -> None:
        first = asyncio.create_task(engine.propose(Request("first")))
        await eventually_async(lambda: bool(llm.script.requests))
        with pytest.raises(Exception, match=r"did not end within 0\.5 seconds") as caught:
            await engine.propose(Request("second", deadline_seconds=0.5))
        assert (caught.value.failure, caught.value.worked) == (Failure.TIMEOUT, False)  # type: ignore[attr-defined]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(run())
    assert len(llm.script.requests) == 1


def test_a_place_is_free_again_after_a_failure_and_after_a_cancellation(llm: LlmSubject) -> None:
    engine = llm.open(Turn(status=401), hang(), say("hello"), endpoint="concurrency = 1")
    fails(engine, Request("first"))
    fails(engine, Request("second", deadline_seconds=0.5))
    assert propose(engine, Request("third", deadline_seconds=120)).text == "hello"


def test_calls_begin_only_so_often_in_a_minute() -> None:
    async def run() -> None:
        clock = Clock()
        gate = Gate(EndpointSettings(requests_per_minute=2), clock=clock)
        assert [await passes(gate) for _ in range(3)] == [True, True, False]
        clock.now = 59.9
        assert not await passes(gate)
        clock.now = 60.1
        assert [await passes(gate) for _ in range(3)] == [True, True, False]

    asyncio.run(run())


def test_no_call_begins_when_the_tokens_of_a_minute_are_used() -> None:
    async def run() -> None:
        clock = Clock()
        gate = Gate(EndpointSettings(tokens_per_minute=1000), clock=clock)
        gate.used(600)
        assert await passes(gate)
        clock.now = 30
        gate.used(600)
        assert not await passes(gate)
        clock.now = 60.1
        assert await passes(gate)

    asyncio.run(run())


@pytest.mark.parametrize("rate", ["requests_per_minute = 1", "tokens_per_minute = 100"])
def test_the_rates_of_the_settings_hold(llm: LlmSubject, rate: str) -> None:
    engine = llm.open(say("one"), say("two"), endpoint=rate)
    propose(engine, Request("first"))
    failed = fails(engine, Request("second", deadline_seconds=0.5))
    assert (failed.failure, failed.worked, len(llm.script.requests)) == (Failure.TIMEOUT, False, 1)


def test_who_came_first_goes_first() -> None:
    order: list[int] = []

    async def run() -> None:
        gate = Gate(EndpointSettings(concurrency=1))

        async def one(number: int) -> None:
            async with gate.passing(1000):
                order.append(number)
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(one(number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert order == [0, 1, 3, 4, 5]


def test_a_pause_ends_and_a_longer_one_is_not_waited_for() -> None:
    async def run() -> None:
        clock = Clock()
        gate = Gate(EndpointSettings(), clock=clock)
        gate.close_for(5)
        assert not await passes(gate, patience=10)
        with pytest.raises(Closed) as caught:
            await passes(gate, patience=4)
        assert caught.value.seconds == 5
        clock.now = 5.1
        assert await passes(gate, patience=4)

    asyncio.run(run())


def test_a_new_pause_sends_away_those_who_wait_already() -> None:
    async def run() -> None:
        gate = Gate(EndpointSettings(concurrency=1))
        async with gate.passing(1):
            waiting = [asyncio.create_task(gate.passing(1).__aenter__()) for _ in range(3)]
            await asyncio.sleep(0)
            gate.close_for(100)
            ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in ends] == [Closed] * 3

    asyncio.run(run())


def test_no_endpoint_closes_its_gate_for_ever() -> None:
    async def run() -> None:
        clock = Clock()
        gate = Gate(EndpointSettings(), clock=clock)
        gate.close_for(1e9)
        clock.now = 601
        assert await passes(gate, patience=1)

    asyncio.run(run())


def test_other_limits_or_another_address_are_another_gate() -> None:
    limits = EndpointSettings(concurrency=2)
    assert gate_of("http://a", limits) is gate_of("http://a", limits.model_copy())
    assert gate_of("http://a", limits) is not gate_of("http://b", limits)
