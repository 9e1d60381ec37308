"""Recorded calls: what a client sent and what came back, without secrets, and no more than was asked for."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.call_record import CallRecorder, NotedCall
from ratchet.agents.contract import place_of
from ratchet.agents.judge_operations import add_eval, record_eval, run_evals
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import Misuse
from ratchet.ledger import Ledger
from ratchet.ledger.agents import create_agent
from ratchet.ledger.evals import list_calls, list_evals
from ratchet.runtime import Runtime
from ratchet.runtime.call import Call
from tests.agents.settled import settle

ASKED = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "tools/call",
    "params": {"name": "greet", "arguments": {"name": "Ada"}},
}
ANSWERED = {
    "jsonrpc": "2.0",
    "id": 7,
    "result": {
        "content": [{"type": "text", "text": "hello, Ada"}],
        "structuredContent": {"result": "hello, Ada"},
    },
}


def noted(asked: Any = ASKED, answered: Any = ANSWERED, *, stream: bool = True) -> NotedCall:
    body = json.dumps(answered).encode()
    answer = b"event: message\r\ndata: " + body + b"\r\n\r\n" if stream else body
    return NotedCall("greeter", "c" * 40, "runner", json.dumps(asked).encode(), answer, 0.012)


@pytest.fixture
def recorder(ledger: Ledger) -> CallRecorder:
    return CallRecorder(ledger, Agents(record_bytes=200, records_kept=3))


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_is_read_from_what_went_over_the_wire(recorder: CallRecorder, stream: bool) -> None:
    row = recorder.read(noted(stream=stream))
    assert row is not None
    assert (row["tool"], row["arguments"], row["outcome"], row["milliseconds"]) == (
        "greet",
        {"name": "Ada"},
        "ok",
        12,
    )
    assert row["result"] == {"failed": False, "text": "hello, Ada", "structured": {"result": "hello, Ada"}}
    assert row["is_whole"]


def test_secrets_are_hidden_and_what_is_long_is_cut(recorder: CallRecorder) -> None:
    def asked(**arguments: Any) -> Any:
        return {**ASKED, "params": {"name": "greet", "arguments": arguments}}

    secret, long = recorder.read(noted(asked(api_key="sk-1"))), recorder.read(noted(asked(name="x" * 500)))
    assert secret is not None
    assert long is not None
    assert (secret["arguments"], secret["is_whole"]) == ({"api_key": "********"}, False)
    assert (len(json.dumps(long["arguments"])) < 300, long["is_whole"]) == (True, False)


@pytest.mark.parametrize(
    ("asked", "answered", "outcome"),
    [
        ({"method": "tools/list", "id": 1}, {}, None),
        ([], {}, None),
        ({**ASKED, "id": None}, "", None),
        (ASKED, {"id": 7, "error": {"message": "no"}}, "failed"),
        (ASKED, {"id": 7, "result": {"content": 5, "isError": True}}, "failed"),
        (ASKED, {"id": 8, "result": {}}, "error"),
        (ASKED, 5, "error"),
    ],
)
def test_whatever_was_said_there_is_a_row_or_none(
    recorder: CallRecorder, asked: Any, answered: Any, outcome: str | None
) -> None:
    row = recorder.read(noted(asked, answered))
    assert (None if row is None else row["outcome"]) == outcome


def test_only_the_newest_are_kept_and_one_becomes_an_eval(recorder: CallRecorder, ledger: Ledger) -> None:
    with ledger.write() as tx:
        agent = create_agent(tx, "greeter", "greets")
    for _ in range(5):
        recorder.note(noted())
    recorder.note(noted()._replace(agent="nobody"))
    recorder.write()
    with ledger.read() as tx:
        found = list_calls(tx, agent.id)
    assert [each.id for each in found] == [5, 4, 3]

    call = cast("Call", SimpleNamespace(read=ledger.read, write=ledger.write, person="Ada"))
    made = record_eval(call, "greeter", 4)
    assert (made.tool, made.arguments, made.expect) == ("greet", {"name": "Ada"}, {"equals": "hello, Ada"})
    with pytest.raises(Misuse, match="cannot expect"):
        add_eval(call, "greeter", "greet", expect={"is": 1})
    with ledger.read() as tx:
        assert [each.call_id for each in list_evals(tx, agent.id)] == [4]


def test_a_share_of_nothing_records_nothing(ledger: Ledger) -> None:
    assert not CallRecorder(ledger, Agents(record_share=0)).wants_next()
    assert CallRecorder(ledger, Agents()).wants_next()


def test_evals_run_on_a_copy_of_the_state_that_a_version_has(runtime: Runtime, ledger: Ledger) -> None:
    commit = settle(runtime)
    store = StateStore(place_of(runtime.home, "greeter").version(commit))
    with store.edit() as state:
        state["greeted"] = 73
    call = cast(
        "Call",
        SimpleNamespace(
            ledger=ledger,
            runtime=runtime,
            home=runtime.home,
            settings=runtime.settings,
            read=ledger.read,
            write=ledger.write,
            person="Ada",
        ),
    )
    add_eval(call, "greeter", "greet", {"name": "Ada"}, {"equals": "hello, Ada"})
    add_eval(call, "greeter", "count", {}, {"equals": 74})
    found = asyncio.run(run_evals(call, "greeter"))
    assert found.passed, found.results
    assert store.read()["greeted"] == 73
