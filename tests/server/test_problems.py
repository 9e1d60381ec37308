"""Whatever goes wrong, the answer has one shape and says what to do."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ratchet.observe import logs
from ratchet.server.app import MAX_BODY_BYTES
from tests.postgres import PostgresServer

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
JSON = {"Content-Type": "application/json"}


@on_sqlite
def test_an_unknown_path_is_404(api: TestClient) -> None:
    answer = api.get("/nowhere")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:ratchet:problem:not-found",
        "title": "Not found",
        "status": 404,
        "detail": "there is nothing at /nowhere",
        "hint": "GET /openapi.json lists what there is",
        "request_id": answer.headers["X-Request-ID"],
    }


@on_sqlite
def test_a_wrong_method_is_405_and_says_which_are_right(api: TestClient) -> None:
    answer = api.put("/runs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.json()["detail"] == "/runs does not take PUT"


@on_sqlite
def test_a_bad_value_is_422_and_names_the_field(api: TestClient) -> None:
    answer = api.get("/runs", params={"status": "bogus"})
    assert answer.status_code == 422
    assert list(answer.json()["errors"]) == ["query.status"]
    assert "'paused'" in answer.json()["detail"]


@on_sqlite
@pytest.mark.parametrize("body", [b"{", b"nonsense", b'{"name": }', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_400(api: TestClient, body: bytes) -> None:
    answer = api.post("/schedules", content=body, headers=JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


@on_sqlite
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"[" * 100_000,
        b"\xff\xfe",
        b'"text"',
        b"[]",
        b'{"name": "\\ud800", "\\udfff": 1}',
        b"NaN",
    ],
)
def test_bad_json_is_the_callers_fault(api: TestClient, body: bytes) -> None:
    answer = api.post("/schedules", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


@on_sqlite
def test_a_misuse_keeps_its_hint(api: TestClient) -> None:
    answer = api.post("/schedules", json={"name": "a", "cron": "* * * * *", "kind": "nott"})
    assert (answer.status_code, answer.json()["hint"]) == (422, "did you mean 'note'?")


@on_sqlite
def test_an_announced_body_that_is_too_long_is_413(api: TestClient) -> None:
    answer = api.post("/schedules", content=b"x" * (MAX_BODY_BYTES + 1), headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:ratchet:problem:too-large")


@on_sqlite
def test_so_is_one_that_is_not_announced(api: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65536 + 2):
            yield b"x" * 65536

    assert api.post("/schedules", content=chunks(), headers=JSON).status_code == 413


@on_sqlite
def test_an_unexpected_error_is_500_and_only_the_log_says_why(api: TestClient) -> None:
    def boom() -> None:
        raise ZeroDivisionError("the secret inside")

    assert isinstance(api.app, FastAPI)
    api.app.add_api_route("/boom", boom)
    stream = io.StringIO()
    logs.configure("info", "text", stream)
    answer = api.get("/boom")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:ratchet:problem:unexpected")
    assert "secret" not in answer.text
    assert "Traceback" in stream.getvalue()
    assert "the secret inside" in stream.getvalue()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_database_that_is_away_is_503_and_back_when_it_is(
    api: TestClient, postgres_server: PostgresServer
) -> None:
    assert api.get("/runs").status_code == 200
    postgres_server.stop()
    for method, path in [("GET", "/runs"), ("POST", "/queues/default/pause"), ("GET", "/events/stream")]:
        answer = api.request(method, path)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2"), path
        assert answer.json()["type"] == "urn:ratchet:problem:ledger-unavailable"
    assert str(postgres_server.directory) not in api.get("/metrics").text
    assert api.get("/health").json() == {
        "status": "degraded",
        "version": "0.1.0",
        "reasons": ["the database does not answer"],
    }
    postgres_server.start()
    assert api.get("/runs").status_code == 200
