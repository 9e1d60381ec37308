"""What every page of the console has in common: its headers, its errors, its stream of changes, and its drawings."""

from __future__ import annotations

import threading
from itertools import pairwise

import httpx
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ratchet.ledger import Ledger
from ratchet.ledger.questions import request_approval
from ratchet.ledger.runs import create_run
from ratchet.server.console.access import POLICY
from ratchet.server.console.drawings import GraphNode, draw
from ratchet.server.console.page import asset, environment
from tests.server.console.forms import send
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def nodes(*names: str) -> list[GraphNode]:
    return [GraphNode(name, name, "pending") for name in names]


def test_every_kind_of_answer_carries_the_policy(
    visitor_client: TestClient, ledger: Ledger, api: TestClient
) -> None:
    stranger = TestClient(api.app, headers={"Accept": "text/html"})
    spoil_events(ledger)
    answers = {
        "a page": visitor_client.get("/console/"),
        "a twin": visitor_client.get("/console/?format=json"),
        "an asset": stranger.get(asset("console.css")),
        "the way in": stranger.get("/console/enter"),
        "somebody sent to it": stranger.get("/console/", follow_redirects=False),
        "a stranger's program": stranger.get("/console/", headers={"Accept": "*/*"}),
        "nothing there": visitor_client.get("/console/nowhere"),
        "a number that is none": visitor_client.get("/console/runs/x"),
        "a method that is none": visitor_client.delete("/console/"),
        "a foreign form": visitor_client.post("/console/leave"),
        "something broken": visitor_client.get("/console/events"),
    }
    assert {name: answer.status_code for name, answer in answers.items()} == {
        "a page": 200,
        "a twin": 200,
        "an asset": 200,
        "the way in": 200,
        "somebody sent to it": 303,
        "a stranger's program": 401,
        "nothing there": 404,
        "a number that is none": 422,
        "a method that is none": 405,
        "a foreign form": 403,
        "something broken": 500,
    }
    for name, answer in answers.items():
        assert answer.headers["Content-Security-Policy"] == POLICY, name
        assert answer.headers["X-Content-Type-Options"] == "nosniff", name
        assert answer.headers["X-Frame-Options"] == "DENY", name
        assert answer.headers["Cache-Control"] == (
            "public, max-age=31536000, immutable" if name == "an asset" else "no-store"
        ), name


def spoil_events(ledger: Ledger) -> None:
    """Make the page of events fail as nobody expected."""
    with ledger.write(actor="test") as tx:
        tx.event("odd", data={"text": "whole"})
    with ledger.engine.begin() as connection:
        connection.execute(sa.text("UPDATE events SET data = 'a secret of the inside'"))


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/console/nowhere", 404, "the bar above leads to everything there is"),
        ("/console/sessions/77", 404, "session 77 does not exist"),
        ("/console/runs?status=happy", 422, "status"),
        ("/console/events", 500, "the server&#39;s log says what"),
    ],
)
def test_an_error_is_a_page_with_the_next_step(
    visitor_client: TestClient, ledger: Ledger, path: str, status: int, said: str
) -> None:
    spoil_events(ledger)
    answer = visitor_client.get(path)
    assert answer.status_code == status
    assert answer.headers["Content-Type"].startswith("text/html")
    assert said in answer.text
    assert "a secret of the inside" not in answer.text
    twin = visitor_client.get(path, params={"format": "json", **({"status": "happy"} if "?" in path else {})})
    assert twin.json()["status"] == status


def test_a_conflict_is_a_page_that_says_why(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        run_id = create_run(tx, "other", "never started as work")
    page = visitor_client.get(f"/console/runs/{run_id}").text
    token = page.partition('name="csrf" value="')[2].partition('"')[0]
    answer = visitor_client.post(f"/console/runs/{run_id}/actions/resume", data={"csrf": token})
    assert answer.status_code == 409
    assert f"run {run_id} is pending" in answer.text


def test_a_page_that_refreshes_itself_leaves_what_an_action_reports_to_the_next_page(
    visitor_client: TestClient, ledger: Ledger
) -> None:
    with ledger.write(actor="test") as tx:
        run_id = create_run(tx, "other", "waits")
        asked = request_approval(tx, "once", subject="step publish", question="Publish it?", run_id=run_id)
    answer = send(visitor_client, f"/console/approvals/{asked.id}/actions/approve")
    assert answer.status_code == 303
    visitor_client.get("/console/", headers={"HX-Request": "true"})
    assert "Approval 1 is approved." in visitor_client.get("/console/").text
    assert 'role="status">' not in visitor_client.get("/console/").text


def test_fields_that_nobody_filled_in_count_as_not_sent(visitor_client: TestClient) -> None:
    assert visitor_client.get("/console/runs?kind=&status=&project_id=").status_code == 200
    # One that ends in the sign itself is filled in.
    found = visitor_client.get("/console/runs?kind=a%3D=&format=json").json()
    assert found["kind"] == "a=="


def test_what_cannot_be_sent_is_shown_without_it(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        tx.event("odd", data={"text": "lone \ud800 surrogate"})
    assert visitor_client.get("/console/events").status_code == 200
    assert visitor_client.get("/console/events?format=json").json()["events"][0]["data"] == {
        "text": "lone ? surrogate"
    }


def test_the_stream_of_changes_ends_when_the_server_drains(site: httpx.Client, api: TestClient) -> None:
    told: list[str] = []
    with site.stream("GET", "/console/live", params={"since": 0}) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        reader = threading.Thread(target=lambda: told.extend(stream.iter_lines()))
        reader.start()
        assert isinstance(api.app, FastAPI)
        api.app.state.service.stop()
        reader.join(60)
        assert not reader.is_alive()
    assert not any("event:" in line for line in told)
    assert site.get("/console/live").status_code == 503


@pytest.mark.soak
def test_a_change_before_the_page_listens_is_not_missed(visitor: Visitor, ledger: Ledger) -> None:
    """The stream is held back until the change has happened: the page was read before, and is told after."""
    with ledger.write(actor="test") as tx:
        create_run(tx, "other", "first")

    def late(route: object) -> None:
        with ledger.write(actor="test") as tx:
            create_run(tx, "other", "second")
        route.continue_()  # type: ignore[attr-defined]

    visitor.page.route("**/console/live*", late)
    visitor.page.goto(f"{visitor.url}/console/runs")
    visitor.page.get_by_role("cell", name="second").wait_for()


def test_a_circle_is_drawn_without_the_line_that_closes_it(url: str) -> None:
    drawing = draw(nodes("a", "b", "c"), [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")])
    assert len(drawing.boxes) == 3
    assert len(drawing.lines) == 2
    assert len({(box.x, box.y) for box in drawing.boxes}) == 3


def test_lines_to_what_is_not_there_are_left_out(url: str) -> None:
    drawing = draw(nodes("a", "b"), [("a", "b"), ("x", "b"), ("a", "y"), ("x", "y")])
    assert len(drawing.lines) == 1
    assert draw([], [("a", "b")]).boxes == []


def test_a_long_chain_and_a_wide_fan_are_drawn(url: str) -> None:
    names = [f"n{number}" for number in range(1000)]
    chain = draw(nodes(*names), pairwise(names))
    assert len({box.x for box in chain.boxes}) == 1000
    fan = draw(nodes(*names), [(names[0], each) for each in names[1:]], strong=names[:2])
    assert len({box.y for box in fan.boxes}) >= 999
    assert sum(line.strong for line in fan.lines) == 1


def test_hostile_text_in_a_drawing_is_text(visitor_client: TestClient, url: str) -> None:
    piece = environment().from_string(
        '{% import "pieces.html" as pieces %}{{ pieces.graph(drawing, "Steps") }}'
    )
    shown = piece.render(drawing=draw([GraphNode("a", '"><script>alert(1)</script>', 'x" onload="y')], []))
    assert "<script>" not in shown
    assert 'onload="y' not in shown
