"""Reading the ledger's events."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from ratchet.ledger import Ledger


@pytest.fixture
def ten(ledger: Ledger) -> list[int]:
    """Ten events of two runs; their numbers."""
    with ledger.write(actor="someone", request_id="r-1") as tx:
        for index in range(10):
            tx.event(
                f"thing.{'even' if index % 2 == 0 else 'odd'}", run_id=1 + index % 2, data={"index": index}
            )
    return list(range(1, 11))


def test_the_newest_come_first(api: TestClient, ten: list[int]) -> None:
    events = api.get("/events").json()
    assert [event["id"] for event in events] == ten[::-1]
    assert events[0].keys() >= {"at", "type", "actor", "request_id", "run_id", "message", "data"}
    assert events[0]["at"].endswith("Z")


@pytest.mark.parametrize("cursor", [{}, {"since": "0"}])
def test_following_the_links_meets_every_event_once(
    api: TestClient, ten: list[int], cursor: dict[str, str]
) -> None:
    answer = api.get("/events", params={"limit": "3", **cursor})
    seen = [event["id"] for event in answer.json()]
    while "next" in answer.links:
        answer = api.get(answer.links["next"]["url"])
        seen += [event["id"] for event in answer.json()]
    assert seen == (ten if cursor else ten[::-1])


def test_the_next_page_is_named_in_a_header(api: TestClient, ten: list[int]) -> None:
    answer = api.get("/events", params={"limit": 4})
    assert answer.headers["X-Next-Before"] == "7"
    assert [event["id"] for event in api.get("/events?before=7&limit=4").json()] == [6, 5, 4, 3]
    assert "X-Next-Before" not in api.get("/events?before=3").headers


def test_since_is_oldest_first(api: TestClient, ten: list[int]) -> None:
    assert [event["id"] for event in api.get("/events?since=7").json()] == [8, 9, 10]


def test_filters_combine(api: TestClient, ten: list[int]) -> None:
    odd = api.get("/events", params={"type": "thing.odd"}).json()
    assert [event["data"]["index"] for event in odd] == [9, 7, 5, 3, 1]
    assert len(api.get("/events", params={"type": "thing.*", "run_id": 1}).json()) == 5
    assert api.get("/events", params={"type": "thing.odd", "run_id": 1}).json() == []


def test_before_and_since_do_not_combine(api: TestClient, ten: list[int]) -> None:
    assert api.get("/events?before=5&since=1").status_code == 422


def test_stored_text_that_no_encoding_has_can_be_sent(api: TestClient, ledger: Ledger) -> None:
    deep: object = "bottom"
    for _ in range(500):
        deep = [deep]
    with ledger.write() as tx:
        tx.event(
            "odd.data", message="nul \x00 and \ud800", data={"lone": "\ud800", "big": 10**40, "deep": deep}
        )
    [event] = api.get("/events").json()
    assert event["data"]["lone"] == "?"
    assert event["data"]["big"] == 10**40
