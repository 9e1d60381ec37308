"""The way into the console and out of it: tokens, cookies, forms, and what hostile ones come to."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.projects import add_project
from ratchet.ledger.runs import create_run
from ratchet.runtime import Runtime
from ratchet.server.app import create_app
from ratchet.server.console.access import HOME, LIFETIME_SECONDS, Visit, Visits, inside
from ratchet.server.service import hash_of
from tests.server.conftest import TOKEN

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
PAGE = {"Accept": "text/html"}
# No run is there, so that a form that gets through is answered with 404 and one that does not with 403.
ACTION = "/console/runs/7/actions/pause"


@pytest.fixture
def stranger(api: TestClient) -> TestClient:
    """Somebody with a browser who has not come in."""
    return TestClient(api.app, headers=PAGE)


def csrf_of(client: TestClient) -> str:
    page = client.get("/console/settings").text
    return page.partition('name="csrf" value="')[2].partition('"')[0]


def with_cookie(api: TestClient, name: str, value: str) -> TestClient:
    # As bytes: a cookie is whatever somebody sends.
    headers: Any = {**PAGE, "Cookie": f"{name}={value}".encode()}
    return TestClient(api.app, headers=headers)


def is_let_in(client: TestClient) -> bool:
    status = client.get("/console/settings", follow_redirects=False).status_code
    assert status in (200, 303)
    return status == 200


def test_the_link_lets_in_and_leaves_the_token_behind(stranger: TestClient) -> None:
    answer = stranger.get(f"/console/enter?token={TOKEN}", follow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/console/")
    assert TOKEN not in str(answer.headers)
    assert is_let_in(stranger)


def test_the_cookie_is_kept_from_scripts_and_other_sites(api: TestClient) -> None:
    for scheme, secure in (("http", False), ("https", True)):
        client = TestClient(api.app, base_url=f"{scheme}://testserver", headers=PAGE)
        cookie = client.get(f"/console/enter?token={TOKEN}", follow_redirects=False).headers["Set-Cookie"]
        flags = [each.strip().lower() for each in cookie.split(";")[1:]]
        assert {"httponly", "path=/console", "samesite=lax", f"max-age={LIFETIME_SECONDS}"} <= set(flags)
        assert ("secure" in flags) is secure


def test_a_wrong_token_is_told_so_and_leads_nowhere(stranger: TestClient) -> None:
    answer = stranger.post("/console/enter", data={"token": "wrong", "next": "/console/events"})
    assert answer.status_code == 401
    assert "not the token of this server" in answer.text
    assert "Set-Cookie" not in answer.headers
    assert not is_let_in(stranger)


def test_who_wanted_a_page_gets_it_after_coming_in(stranger: TestClient) -> None:
    sent_away = stranger.get("/console/events?type=run.*", follow_redirects=False)
    assert sent_away.headers["Location"] == f"/console/enter?next={quote('/console/events?type=run.*')}"
    form = stranger.get(sent_away.headers["Location"]).text
    assert 'name="next" value="/console/events?type=run.*"' in form
    came_in = stranger.post("/console/enter", data={"token": TOKEN, "next": "/console/events?type=run.*"})
    assert came_in.url.path == "/console/events"


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example/console/",
        "https:/console/",
        "javascript:alert(1)",
        "/console/\r\nSet-Cookie: a=b",
        "/console/\x00",
        "//[",
        "http://[console/",
        "/console",
        "/consolexyz/",
        "/console/enter?token=x",
        "console/",
        "",
    ],
)
def test_no_way_leads_out_of_the_console(url: str, wanted: str) -> None:
    assert inside(wanted) == HOME


def test_a_hostile_way_is_not_followed(stranger: TestClient) -> None:
    for wanted in ("//evil.example", "http://[", "/console/\r\nX: y"):
        answer = stranger.post(
            "/console/enter", data={"token": TOKEN, "next": wanted}, follow_redirects=False
        )
        assert (answer.status_code, answer.headers["Location"]) == (303, HOME)
        assert "X" not in answer.headers


def test_cookies_that_this_server_did_not_make_let_nobody_in(api: TestClient, url: str) -> None:
    ours = Visits(TOKEN)
    good = ours.sealed(ours.begin())
    assert is_let_in(with_cookie(api, ours.cookie, good))
    said, _, signature = good.partition(".")
    longer = Visits(TOKEN).sealed(Visit("n", 99999999999)).partition(".")[0]
    foreign = Visits("another token")
    for forged in (
        "",
        ".",
        said,
        f"{said}.",
        f"{longer}.{signature}",
        f"{said}.{signature[:-2]}AA",
        foreign.sealed(foreign.begin()),
        "é.é",
        "%00.%00",
        "a" * 5000,
        json.dumps(["n", 99999999999, []]),
    ):
        assert not is_let_in(with_cookie(api, ours.cookie, forged)), forged


def test_a_visit_ends_when_its_time_is_over(api: TestClient, url: str) -> None:
    ours = Visits(TOKEN)
    assert not is_let_in(with_cookie(api, ours.cookie, ours.sealed(Visit("n", 1))))


def test_a_new_token_ends_every_visit(visitor_client: TestClient, runtime: Runtime, loaded: Loaded) -> None:
    again = TestClient(
        create_app(runtime, loaded, "a new token"), headers=PAGE, cookies=visitor_client.cookies
    )
    assert is_let_in(visitor_client)
    assert not is_let_in(again)


def test_leaving_ends_the_visit(visitor_client: TestClient) -> None:
    answer = visitor_client.post("/console/leave", data={"csrf": csrf_of(visitor_client)})
    assert answer.url.path == "/console/enter"
    assert not is_let_in(visitor_client)


def test_only_a_form_of_the_visitors_own_acts(api: TestClient, visitor_client: TestClient) -> None:
    token = csrf_of(visitor_client)
    other = TestClient(api.app, headers=PAGE)
    other.get(f"/console/enter?token={TOKEN}")
    foreign = [
        ({}, {}),
        ({"csrf": ""}, {}),
        ({"csrf": "é"}, {}),
        ({"csrf": csrf_of(other)}, {}),
        ({"csrf": token}, {"Origin": "https://evil.example"}),
        ({"csrf": token}, {"Origin": "null"}),
        ({"csrf": token}, {"Origin": "http://["}),
        ({"csrf": token}, {"Sec-Fetch-Site": "cross-site"}),
        ({"csrf": token}, {"Sec-Fetch-Site": "same-site"}),
    ]
    for form, headers in foreign:
        assert visitor_client.post(ACTION, data=form, headers=headers).status_code == 403, (form, headers)
    own = [
        ({"csrf": token}, {}),
        ({"csrf": token}, {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}),
        ({}, {"X-CSRF-Token": token}),
    ]
    for form, headers in own:
        assert visitor_client.post(ACTION, data=form, headers=headers).status_code == 404, (form, headers)


def test_the_bearer_token_looks_but_does_not_act(api: TestClient) -> None:
    assert api.get("/console/runs?format=json").json()["runs"] == []
    assert api.post(ACTION).status_code == 403
    assert TestClient(api.app, headers={"Authorization": "Bearer wrong"}).get("/console/").status_code == 401


def test_a_stranger_that_is_no_browser_gets_a_problem(api: TestClient) -> None:
    answer = TestClient(api.app).get("/console/runs", headers={"Accept": "application/json"})
    assert answer.status_code == 401
    assert answer.json()["hint"] == "sign in at /console/enter"


def test_the_token_of_a_project_opens_no_page(api: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        add_project(tx, "guarded", token_hash=hash_of(b"theirs"))
    theirs = TestClient(api.app, headers={"Authorization": "Bearer theirs"})
    for path in ("/console/", "/console/events", "/console/runs", "/console/projects/1"):
        assert theirs.get(path).status_code == 401, path


def test_a_guarded_project_is_hidden_until_its_token_is_shown(
    visitor_client: TestClient, ledger: Ledger
) -> None:
    with ledger.write(actor="test") as tx:
        for name in ("first", "second"):
            guarded = add_project(tx, name, token_hash=hash_of(name.encode()))
            create_run(tx, "other", f"run of {name}", project_id=guarded)
        create_run(tx, "other", "run of the open one", project_id=add_project(tx, "open"))

    def seen() -> list[str]:
        twin = visitor_client.get("/console/runs?format=json").json()
        return [run["name"].removeprefix("run of ") for run in twin["runs"]]

    def show(token: str) -> int:
        form = {"csrf": csrf_of(visitor_client), "token": token, "next": "/console/runs"}
        return visitor_client.post("/console/project-token", data=form).status_code

    assert seen() == ["the open one"]
    asked = visitor_client.get("/console/runs/1?format=html")
    assert asked.status_code == 401
    assert "Token of the project" in asked.text
    assert show("wrong") == 422
    assert show("first") == 200
    assert (seen(), visitor_client.get("/console/runs/2").status_code) == (["the open one", "first"], 401)
    assert show("second") == 200
    assert seen() == ["the open one", "second", "first"]
    pages = [visitor_client.get(f"/console/runs/{number}").status_code for number in (1, 2, 3)]
    assert pages == [200, 200, 200]
