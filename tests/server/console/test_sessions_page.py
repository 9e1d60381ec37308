"""Sessions: the list, and the player of what was said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.engines import Failure, Session, SessionFailed
from ratchet.engines.transcript import record_session
from ratchet.kernel import RunStatus, StepStatus, Usage
from ratchet.ledger import Ledger, Spender, change_run, change_step
from ratchet.ledger.projects import add_project
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt
from ratchet.ledger.usage import add_session
from ratchet.server.service import hash_of
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
HOSTILE = "<img src=x onerror=alert(1)>"
USED = Usage(input_tokens=1200, cached_tokens=200, output_tokens=300, cost_microusd=4500, wall_ms=61_000)


def said(kind: str, text: str = "", ms: int = 0, **data: Any) -> dict[str, Any]:
    return {"ms": ms, "kind": kind, "text": text, "data": data}


TALK = [
    said("started", "gpt", 5),
    said("message", "I will look ", 100, more=True),
    said("message", f"at it. {HOSTILE}", 150),
    said("tool_call", "cat main.py", 200, id="c1", tool="command"),
    said("tool_result", "\x1b[31mprint(1)\x1b[0m\n" + "long line\n" * 400, 900, id="c1", exit_code=0),
    said("usage", "", 950, input_tokens=1000, output_tokens=100, cost_microusd=3000),
    said("file_change", "main.py", 1200, change="update"),
    said("usage", "", 1300, input_tokens=1200, output_tokens=300, cost_microusd=4500),
    said("message", "Done: é and 你好.", 1400),
]


def attempt_in(ledger: Ledger, project_id: int | None = None) -> Spender:
    with ledger.write(actor="test") as tx:
        run_id = create_run(tx, "demo", "primes", project_id=project_id)
        change_run(tx, run_id, RunStatus.RUNNING)
        [step] = create_steps(tx, run_id, [("build", {})])
        change_step(tx, step, StepStatus.RUNNING)
        return Spender(open_attempt(tx, get_step(tx, step)), run_id)


def record(ledger: Ledger, talk: list[dict[str, Any]] | bytes, **more: Any) -> int:
    """A session of an attempt with its prompt and its transcript."""
    lines = talk if isinstance(talk, bytes) else "".join(json.dumps(each) + "\n" for each in talk).encode()
    spender = attempt_in(ledger, more.pop("project_id", None))
    came_to_nothing = more.pop("failed", False)
    session = Session("codex", "gpt", usage=USED, transcript=lines, **more)
    failed = SessionFailed(Failure.TIMEOUT, "it took too long", session=session) if came_to_nothing else None
    with ledger.write(actor="test") as tx:
        return record_session(
            tx, ledger.artifacts, session, "author", spender, failed, prompt="Make it faster."
        )


def twin(client: TestClient, path: str) -> Any:
    joined = "&" if "?" in path else "?"
    return client.get(f"/console/sessions{path}{joined}format=json").json()


def test_no_sessions_say_when_there_will_be_some(visitor_client: TestClient) -> None:
    assert "ratchet engine check" in visitor_client.get("/console/sessions").text


@pytest.mark.soak
def test_a_session_comes_onto_the_open_list_when_it_has_ended(visitor: Visitor, ledger: Ledger) -> None:
    page = visitor.open("/sessions")
    record(ledger, TALK, simulated=True)
    page.get_by_role("cell", name="simulated").wait_for()
    record(ledger, TALK, failed=True)
    page.get_by_role("cell", name="failed").wait_for()
    visitor.check()
    visitor.phone()
    page.get_by_label("only failed ones").check()
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_session_is_read_entry_by_entry(visitor_client: TestClient, ledger: Ledger) -> None:
    number = record(ledger, TALK)
    shown = twin(visitor_client, f"/{number}")
    entries = shown["transcript"]["entries"]
    assert [(each["number"], each["kind"]) for each in entries] == [
        (1, "started"),
        (2, "message"),
        (4, "tool_call"),
        (5, "tool_result"),
        (6, "usage"),
        (7, "file_change"),
        (8, "usage"),
        (9, "message"),
    ]
    assert entries[1]["text"] == f"I will look at it. {HOSTILE}"
    turns = [each["turn"] for each in entries if each["turn"]]
    assert [(each["input_tokens"], each["cost_usd"]) for each in turns] == [(1000, 0.003), (200, 0.0015)]
    assert shown["prompt"]["text"] == "Make it faster."
    page = visitor_client.get(f"/console/sessions/{number}").text
    assert HOSTILE not in page
    assert "\x1b" not in page
    assert "你好" in page


def test_each_session_of_an_attempt_has_its_own_prompt(visitor_client: TestClient, ledger: Ledger) -> None:
    spender = attempt_in(ledger)
    numbers = {}
    for asked in ("first", "second"):
        with ledger.write(actor="test") as tx:
            session = Session("codex", transcript=f"{asked}\n".encode())
            numbers[asked] = record_session(tx, ledger.artifacts, session, "author", spender, prompt=asked)
    shown = {asked: twin(visitor_client, f"/{number}")["prompt"]["text"] for asked, number in numbers.items()}
    assert shown == {"first": "first", "second": "second"}


def test_a_long_session_is_read_in_pages_and_searched_as_a_whole(
    visitor_client: TestClient, ledger: Ledger
) -> None:
    long = [said("tool_call", f"pytest case_{number}", number * 10, id=number) for number in range(250)]
    number = record(ledger, [*long, said("message", "All Green", 9000)])
    after, seen = 0, 0
    while after is not None:
        page = twin(visitor_client, f"/{number}?after={after}")["transcript"]
        seen, after = seen + len(page["entries"]), page["next"]
    assert seen == 251
    found = twin(visitor_client, f"/{number}?search=all%20GREEN")["transcript"]
    assert [(each["number"], each["text"]) for each in found["entries"]] == [(251, "All Green")]
    assert (found["matches"], found["lines"]) == (1, 251)


def test_a_broken_transcript_is_shown_as_it_is(visitor_client: TestClient, ledger: Ledger) -> None:
    content = b'{"kind": "message", "text": "well"}\nno json\n[1]\n{"ms": "x", "kind": 3}\n\xff\xfe\n'
    odd = b'{"kind": "usage", "data": {"input_tokens": -5, "wall_ms": "x"}}\n'
    number = record(ledger, content + odd)
    entries = twin(visitor_client, f"/{number}")["transcript"]["entries"]
    assert [each["kind"] for each in entries] == ["message", "note", "note", "note", "note", "usage"]
    assert visitor_client.get(f"/console/sessions/{number}").status_code == 200


def test_a_session_whose_transcript_is_gone_still_has_its_figures(
    visitor_client: TestClient, ledger: Ledger
) -> None:
    with ledger.write(actor="test") as tx:
        kept = add_session(tx, role="author", engine="search", usage=USED)
        lost = add_session(tx, role="author", engine="codex", usage=USED, transcript="a" * 64)
    assert "No transcript" in visitor_client.get(f"/console/sessions/{kept}").text
    assert "The transcript is gone" in visitor_client.get(f"/console/sessions/{lost}").text


def test_sessions_of_a_guarded_project_are_hidden(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        guarded = add_project(tx, "guarded", token_hash=hash_of(b"theirs"))
    number = record(ledger, TALK, project_id=guarded)
    assert twin(visitor_client, "")["sessions"] == []
    assert visitor_client.get(f"/console/sessions/{number}").status_code == 401


@pytest.mark.soak
def test_a_session_is_stepped_through_played_and_searched(visitor: Visitor, ledger: Ledger) -> None:
    number = record(ledger, TALK)
    page = visitor.open(f"/sessions/{number}")
    here = page.locator(".entry.is-here")
    expect(here).to_have_attribute("id", "entry-1")
    page.keyboard.press("n")
    page.get_by_role("button", name="Next").click()
    expect(here).to_have_attribute("id", "entry-4")
    page.keyboard.press("p")
    expect(here).to_have_attribute("id", "entry-2")
    assert page.url.endswith("#entry-2")
    page.goto(f"{visitor.url}/console/sessions/{number}#entry-9")
    expect(here).to_have_attribute("id", "entry-9")
    page.get_by_label("Speed").select_option("64")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_text("8 of 8")).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    visitor.check()
    visitor.phone()
    page.get_by_label("Search in it").fill("main.py")
    page.keyboard.press("Enter")
    expect(page.locator(".entry")).to_have_count(2)
    visitor.check()


@pytest.mark.soak
def test_without_scripts_the_player_is_a_plain_list(visitor: Visitor, ledger: Ledger) -> None:
    number = record(ledger, TALK)
    cookies = visitor.context.cookies()
    assert visitor.context.browser is not None
    plain = visitor.context.browser.new_context(java_script_enabled=False)
    plain.add_cookies(
        [{"name": each["name"], "value": each["value"], "url": f"{visitor.url}/console"} for each in cookies]
    )
    page = plain.new_page()
    page.goto(f"{visitor.url}/console/sessions/{number}")
    assert page.locator(".entry").count() == 8
    assert not page.get_by_role("button", name="Play").is_visible()
    plain.close()
