"""The events of one protocol as they happen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

import httpx
from fastapi.testclient import TestClient

from tests.server.protocol_things import new_project, new_protocol, ok


def test_a_stream_tells_of_its_protocol_alone_after_the_last_event_seen(
    live: httpx.Client, api: TestClient
) -> None:
    project = new_project(api)
    one, other = new_protocol(api, project, "0001-one"), new_protocol(api, project, "0002-other")
    last = ok(api.get(f"/protocols/{one}/events"))[0]["id"]
    headers = {"Last-Event-ID": str(last)}
    with live.stream("GET", f"/protocols/{one}/events/stream?since=0", headers=headers) as answer:
        lines = answer.iter_lines()
        for protocol in (other, one):
            ok(api.post(f"/protocols/{protocol}/actions/pause"))
        heard = [json.loads(line[6:]) for line in _first(lines, 2)]
    assert [event["event_type"] for event in heard] == ["run.paused", "paused"]
    assert {event["protocol_run_id"] for event in heard} == {one}


def _first(lines: Iterator[str], count: int) -> list[str]:
    return list(islice((line for line in lines if line.startswith("data: ")), count))
