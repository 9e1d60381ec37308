"""The live stream of events: none lost, none twice, however often the connection breaks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import httpx
import pytest
from fastapi.testclient import TestClient

from ratchet.ledger import Ledger
from tests.postgres import PostgresServer
from tests.server.conftest import REPOSITORY, Server, Start

APPENDER = """
import sys, time
from pathlib import Path
from ratchet.ledger import Ledger
ledger = Ledger.open(sys.argv[1], Path(sys.argv[2]))
for number in range(int(sys.argv[3])):
    with ledger.write(actor="appender") as tx:
        for part in range(3):
            tx.event("drop.fell", data={"number": 3 * number + part})
    time.sleep(0.01)
"""


@contextmanager
def listening(client: httpx.Client, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, object]]]:
    with client.stream("GET", f"/events/stream{query}", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield messages(answer)


def messages(answer: httpx.Response) -> Iterator[dict[str, object]]:
    """The events of a stream, each checked against its `id:` line."""
    data: dict[str, object] = {}
    for line in answer.iter_lines():
        if line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
        elif line.startswith("id: "):
            assert line == f"id: {data['id']}"
            yield data


@pytest.mark.soak
def test_a_broken_connection_loses_and_repeats_nothing(
    live: httpx.Client, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-c", APPENDER, ledger.url, str(ledger.artifacts.root), "100"]
    seen: list[object] = []
    last = "0"
    with subprocess.Popen(command, cwd=REPOSITORY) as appender:
        try:
            while len(seen) < 300:
                # Each connection is dropped in the middle of things after a few events.
                headers = {"Last-Event-ID": last} if last != "0" else {}
                with listening(live, "?since=0&type=drop.*", **headers) as events:
                    for event in islice(events, min(17, 300 - len(seen))):
                        seen.append(event["data"])
                        last = str(event["id"])
        finally:
            appender.kill()
    assert seen == [{"number": number} for number in range(300)]
    assert "went wrong" not in caplog.text


def test_without_a_number_the_stream_begins_now(live: httpx.Client, ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.event("old.one")
    with listening(live, "?type=old.*") as events:
        with ledger.write() as tx:
            tx.event("old.two")
        assert next(events)["type"] == "old.two"


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_silent_stream_says_now_and_then_that_it_lives(live: httpx.Client) -> None:
    with live.stream("GET", "/events/stream?type=never.*") as answer:
        assert next(answer.iter_lines()) == ": ping"


def test_many_may_listen_and_each_hears_its_own_run(live: httpx.Client, ledger: Ledger) -> None:
    heard: dict[int, list[object]] = {}

    def listen(run_id: int) -> None:
        with listening(live, f"?since=0&run_id={run_id}") as events:
            heard[run_id] = [event["data"] for event in islice(events, 20)]

    threads = [threading.Thread(target=listen, args=(run_id,)) for run_id in range(1, 6)]
    for thread in threads:
        thread.start()
    for index in range(20):
        with ledger.write() as tx:
            for run_id in range(1, 6):
                tx.event("run.note", run_id=run_id, data=[run_id, index])
    for thread in threads:
        thread.join(20)
    assert heard == {run_id: [[run_id, index] for index in range(20)] for run_id in range(1, 6)}


@pytest.mark.parametrize("number", ["-1", "x", str(2**63), "1;2"])
def test_a_number_that_cannot_be_is_refused(api: TestClient, number: str) -> None:
    assert api.get("/events/stream", headers={"Last-Event-ID": number}).status_code == 422


@pytest.mark.soak
def test_a_signal_ends_open_streams_without_a_traceback(server: Server) -> None:
    with listening(server.client) as events:
        code, _ = server.stop()
        assert [event["type"] for event in events][-1:] in ([], ["process.left"])
    assert (code, "Traceback" in server.words, "rror" in server.words) == (0, False, False), server.words


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_listener_that_does_not_read_cannot_hold_up_the_end(server: Server, ledger: Ledger) -> None:
    for _ in range(20):
        with ledger.write() as tx:
            for _ in range(50):
                tx.event("long.one", data={"text": "x" * 50_000})
    with listening(server.client, "?since=0") as events:
        next(events)
        time.sleep(1)
        code, _ = server.stop()
    assert (code, "Traceback" in server.words) == (0, False), server.words


@pytest.mark.soak
def test_a_stream_outlives_a_restart_of_the_database(start_server: Start) -> None:
    with PostgresServer() as database:
        url = database.create_database()
        server = start_server(url)
        with (
            Ledger.open(url, server.home / "artifacts") as ledger,
            listening(server.client, "?type=drop.*") as events,
        ):
            for number in range(3):
                with ledger.write() as tx:
                    tx.event("drop.fell", data=number)
                assert next(events)["data"] == number
                database.restart()
            assert server.client.get("/health/ready").status_code == 200
        assert server.stop()[0] == 0
        assert "Traceback" not in server.words
