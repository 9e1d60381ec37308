"""The log of an attempt: read in parts, followed live, and taken up again anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import Outcome
from ratchet.ledger import Ledger
from ratchet.ledger.runs import close_attempt, create_run, create_steps, get_step, open_attempt
from tests.server.protocol_things import ok

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def attempt(ledger: Ledger) -> int:
    with ledger.write() as tx:
        [step] = create_steps(tx, create_run(tx, "protocol", "0001-x"), [("00-a", {})])
        return open_attempt(tx, get_step(tx, step))


def say(ledger: Ledger, attempt: int, *texts: str) -> None:
    with ledger.write() as tx:
        for text in texts:
            tx.event("session.message", attempt_id=attempt, message=text)
        # What others say meanwhile is no part of it.
        tx.event("session.message", message="of somebody else")


def end(ledger: Ledger, attempt: int) -> None:
    with ledger.write() as tx:
        close_attempt(tx, attempt, Outcome.PASSED, "all is well")


def test_parts_put_together_are_the_whole_log(api: TestClient, ledger: Ledger, attempt: int) -> None:
    say(ledger, attempt, *(f"line {number} {'x' * number}" for number in range(300)))
    whole = ok(api.get(f"/attempts/{attempt}/log", params={"max_bytes": 1024 * 1024}))
    parts, offset = "", 0
    while True:
        part = ok(api.get(f"/attempts/{attempt}/log", params={"offset": offset, "max_bytes": 5000}))
        if part["next_offset"] == offset:
            break
        assert len(part["chunk"]) <= 5000
        parts, offset = parts + part["chunk"], part["next_offset"]
    assert parts == whole["chunk"]
    assert (parts.count("\n"), "somebody else" in parts) == (301, False)
    assert (part["chunk"], part["ended"], whole["next_offset"]) == ("", False, offset)


def test_the_end_is_told_with_the_last_part_and_not_before(
    api: TestClient, ledger: Ledger, attempt: int
) -> None:
    say(ledger, attempt, "one", "two")
    end(ledger, attempt)
    first = ok(api.get(f"/attempts/{attempt}/log", params={"max_bytes": 1}))
    assert (first["chunk"].count("\n"), first["ended"]) == (1, False)
    rest = ok(api.get(f"/attempts/{attempt}/log", params={"offset": first["next_offset"]}))
    assert rest["ended"] is True
    assert [line.split(" ", 1)[1] for line in rest["chunk"].splitlines()] == [
        "message one",
        "message two",
        "attempt.passed all is well",
    ]


@on_sqlite
def test_strange_places_are_refused(api: TestClient, attempt: int) -> None:
    for query in ("offset=-1", "offset=x", f"offset={2**63}", "max_bytes=0", f"max_bytes={2**30}"):
        assert api.get(f"/attempts/{attempt}/log?{query}").status_code == 422, query
    assert ok(api.get(f"/attempts/{attempt}/log", params={"offset": 2**62}))["chunk"] == ""
    for path in ("", "/log", "/log/stream", "/diff", "/artifacts"):
        assert api.get(f"/attempts/99{path}").status_code == 404, path
    assert api.get(f"/attempts/{attempt}/diff").status_code == 404


@on_sqlite
def test_hostile_text_stays_text(api: TestClient, ledger: Ledger, attempt: int) -> None:
    say(ledger, attempt, "\ud800 <script> \x00 \x1b[2J", "two\nlines")
    answer = api.get(f"/attempts/{attempt}/log")
    assert answer.headers["content-type"] == "application/json"
    assert "two\nlines\n" in answer.json()["chunk"]


def messages(answer: httpx.Response) -> Iterator[tuple[str, dict[str, object]]]:
    """The kind of each message, and what it carries."""
    kind, data = "", {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            data = json.loads(value)
        elif not line:
            yield kind, data
            kind = ""


def test_a_stream_follows_the_attempt_to_its_end(live: httpx.Client, ledger: Ledger, attempt: int) -> None:
    with live.stream("GET", f"/attempts/{attempt}/log/stream") as answer:
        heard = messages(answer)
        assert "attempt.started" in str(next(heard))
        say(ledger, attempt, "one")
        kind, line = next(heard)
        assert (kind, str(line["text"]).split(" ", 1)[1]) == ("", "message one\n")
        end(ledger, attempt)
        assert "all is well" in str(next(heard))
        assert [kind for kind, _ in heard] == ["end"]


def test_a_stream_goes_on_where_it_broke_off(live: httpx.Client, ledger: Ledger, attempt: int) -> None:
    say(ledger, attempt, *map(str, range(450)))
    end(ledger, attempt)
    heard: list[str] = []
    last, ended = 0, False
    while not ended:
        headers = {"Last-Event-ID": str(last)}
        with live.stream("GET", f"/attempts/{attempt}/log/stream?offset=7", headers=headers) as answer:
            for number, (kind, line) in enumerate(messages(answer)):
                if kind == "end":
                    ended = True
                    break
                heard.append(str(line["text"]))
                last = int(str(line["offset"]))
                if number == 120:
                    break
    said = [line.split()[2] for line in heard if line.split()[1] == "message"]
    assert said == [str(number) for number in range(450)]


def test_an_attempt_whose_process_died_ends_when_the_next_begins(
    live: httpx.Client, ledger: Ledger, attempt: int
) -> None:
    with live.stream("GET", f"/attempts/{attempt}/log/stream") as answer:
        heard = messages(answer)
        next(heard)
        with ledger.write() as tx:
            open_attempt(tx, get_step(tx, 1))
        assert [kind for kind, _ in heard][-1] == "end"
