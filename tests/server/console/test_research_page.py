"""The pages of research: runs, a run, its trials, its lineage, runs side by side."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.config import Loaded
from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger, change_run
from ratchet.ledger.research import add_lesson
from ratchet.ledger.runs import get_run
from ratchet.workspaces import Repository
from tests.research.views.made_up import grow, make_baseline, make_run, submit, try_out
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
HOSTILE = "<script>alert(1)</script>"
MEASURED = {
    "samples": [1.1, 1.2],
    "seeds": [1, 2],
    "test": "paired",
    "p_value": 0.01,
    "low": 0.1,
    "high": 0.2,
}


@pytest.fixture
def run_id(ledger: Ledger) -> int:
    """A running run with a trial of every kind."""
    run_id = make_run(ledger, simulated=True)
    make_baseline(ledger, run_id)
    try_out(ledger, run_id, "keep", 1.2, f"wider {HOSTILE}", expected_delta="+0.1", measurements=MEASURED)
    try_out(ledger, run_id, "crash", reason=f"ValueError: {HOSTILE}", specialist="arch", parent=1)
    try_out(ledger, run_id, "discard", 1.195, "nearly as good", parent=1, expected_delta="-0.1")
    submit(ledger, run_id, "still being measured", specialist="arch", parent=1)
    with ledger.write() as tx:
        add_lesson(tx, run_id, "opt", "small steps help", trial=1)
        change_run(tx, run_id, RunStatus.RUNNING)
    return run_id


def csrf(client: TestClient, path: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found
    return found[1]


@pytest.mark.soak
def test_every_page_is_reached_by_clicking(visitor: Visitor, ledger: Ledger, run_id: int) -> None:
    page = visitor.open("/research")
    page.get_by_role("link", name="a run").click()
    expect(page.get_by_role("heading", name="Score over trials")).to_be_visible()
    visitor.check()
    visitor.phone()
    page.get_by_role("link", name="001 keep").click()
    expect(page.get_by_role("heading", name="Trial 001")).to_be_visible()
    visitor.check()
    visitor.phone()
    page.get_by_role("link", name="a run").click()
    page.get_by_role("link", name="All trials").click()
    page.get_by_label("Specialist").fill("arch")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(2)
    visitor.check()
    visitor.open(f"/research/compare?run={run_id}")
    page.get_by_label("a run").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="The best after so many trials")).to_be_visible()
    visitor.check()
    visitor.phone()


@pytest.mark.soak
def test_a_run_page_follows_its_trials_and_its_buttons(visitor: Visitor, ledger: Ledger, run_id: int) -> None:
    page = visitor.open(f"/research/{run_id}")
    expect(page.get_by_role("button", name="Resume")).to_be_disabled()
    try_out(ledger, run_id, "keep", 1.5, "an even wider one", parent=1)
    page.get_by_role("cell", name="an even wider one").wait_for()
    assert page.locator(".plot circle.keep").count() == 2
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("status").get_by_text("is paused").wait_for()
    expect(page.get_by_role("button", name="Pause")).to_be_disabled()
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()
    visitor.check()


@pytest.mark.soak
def test_ten_thousand_trials_are_a_tree_to_walk_in(visitor: Visitor, ledger: Ledger) -> None:
    run_id = make_run(ledger)
    make_baseline(ledger, run_id)
    grow(ledger, run_id, 10_000)
    page = visitor.open(f"/research/{run_id}/lineage")
    told = page.locator(".lineage output")
    expect(told).to_have_text("10,001 trials. The best is 10000.")
    try_out(ledger, run_id, "discard", 1.0, parent=10_000)
    expect(told).to_have_text("10,002 trials. The best is 10000.")
    page.locator(".lineage canvas").focus()
    for key in ("End", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    expect(told).to_contain_text("from 9984")
    page.get_by_role("button", name="The best").click()
    expect(told).to_contain_text("Trial 10000, keep")
    visitor.check()
    visitor.phone()
    page.locator(".lineage canvas").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/trials/10000")
    visitor.check()


def test_without_research_each_page_says_what_to_do(visitor_client: TestClient, ledger: Ledger) -> None:
    for path in ("/console/research", "/console/research/compare"):
        assert "ratchet research run circle_packing" in visitor_client.get(path).text
    assert "circle_packing" in [
        task["name"] for task in visitor_client.get("/console/research?format=json").json()["tasks"]
    ]
    run_id = make_run(ledger)
    assert "Nothing was measured yet" in visitor_client.get(f"/console/research/{run_id}").text
    assert "No trial yet" in visitor_client.get(f"/console/research/{run_id}/lineage").text
    assert visitor_client.get("/console/research/nobody").status_code == 404


def test_twins_tell_what_pages_show_and_hostile_text_stays_text(
    visitor_client: TestClient, run_id: int
) -> None:
    base = f"/console/research/{run_id}"
    for path in (base, f"{base}/trials", f"{base}/trials/001", f"{base}/trials/2", f"{base}/lineage"):
        page = visitor_client.get(path)
        assert page.status_code == 200
        assert HOSTILE not in page.text
        assert "simulated" in page.text
    run = visitor_client.get(f"{base}?format=json").json()
    assert (run["standing"]["best"]["exp_id"], run["keeps"]) == ("001", 1)
    assert run["confidence"]["p_value"] == 0.01
    assert list(run["plot"]["marks"]) == ["failed-crash", "discard", "baseline", "keep"]
    trial = visitor_client.get(f"{base}/trials/1?format=json").json()
    assert (trial["trial"]["hypothesis"], trial["expected"]) == (f"wider {HOSTILE}", 0.1)
    assert [each["exp_id"] for each in trial["children"]] == ["004", "003", "002"]
    assert trial["parent"]["exp_id"] == "000"
    assert trial["diff"] is None
    side = visitor_client.get(f"/console/research/compare?run={run_id}&run=a run&format=json").json()
    assert [each["run"] for each in side["runs"]] == [run_id]
    assert [each["run"] for each in visitor_client.get("/console/research?format=json").json()["runs"]] == [
        run_id
    ]


def test_the_plot_marks_keeps_and_shows_the_noise_where_there_is_any(
    visitor_client: TestClient, ledger: Ledger, run_id: int
) -> None:
    noisy = visitor_client.get(f"/console/research/{run_id}").text
    assert noisy.count('class="band"') == noisy.count('class="base-band"') == 1
    exact = make_run(ledger)
    make_baseline(ledger, exact, spread={"score": 1.0, "sd": None, "n": 1})
    try_out(ledger, exact, "keep", 1.2, "wider")
    steady = visitor_client.get(f"/console/research/{exact}").text
    assert 'class="band"' not in steady
    assert 'class="base-band"' not in steady
    for page in (noisy, steady):
        assert "001 keep" in page


def test_a_trial_shows_its_change(visitor_client: TestClient, ledger: Ledger, loaded: Loaded) -> None:
    run_id = make_run(ledger)
    place = Path(loaded.home) / "research" / str(run_id) / "repo.git"
    place.parent.mkdir(parents=True)
    with Repository.create(place) as repository:
        first = repository.commit_files({"recipe.py": b"WIDTH = 1\n"}, parent=None, message="first")
        second = repository.commit_files({"recipe.py": b"WIDTH = 2\n"}, parent=first, message="second")
    make_baseline(ledger, run_id)
    number = try_out(ledger, run_id, "discard", 1.0, commit=second)
    page = visitor_client.get(f"/console/research/{run_id}/trials/{number}").text
    assert '<span class="added">+WIDTH = 2' in page


def test_the_tree_is_sent_again_only_when_something_happened(
    visitor_client: TestClient, ledger: Ledger, run_id: int
) -> None:
    path = f"/console/research/{run_id}/lineage/data"
    first = visitor_client.get(path)
    assert first.json()["number"] == [0, 1, 2, 3, 4]
    known = {"If-None-Match": first.headers["ETag"]}
    assert visitor_client.get(path, headers=known).status_code == 304
    submit(ledger, run_id, parent=1)
    assert visitor_client.get(path, headers=known).json()["number"][-1] == 5
    assert visitor_client.get(f"{path}?after=4").json()["number"] == [5]


def test_a_report_keeps_its_own_policy(visitor_client: TestClient, run_id: int) -> None:
    answer = visitor_client.get(f"/console/research/{run_id}/report")
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert HOSTILE not in answer.text


def test_an_action_needs_a_form_of_ours_and_a_state_that_allows_it(
    visitor_client: TestClient, ledger: Ledger, run_id: int
) -> None:
    base = f"/console/research/{run_id}"
    assert visitor_client.post(f"{base}/actions/stop", data={}).status_code == 403
    form = {"csrf": csrf(visitor_client, base)}
    assert visitor_client.post(f"{base}/actions/resume", data=form).status_code == 409
    assert visitor_client.post(f"{base}/actions/explode", data=form).status_code == 404
    with ledger.read() as tx:
        assert get_run(tx, run_id).status is RunStatus.RUNNING
    visitor_client.post(f"{base}/actions/stop", data=form)
    with ledger.read() as tx:
        assert get_run(tx, run_id).status is RunStatus.CANCELLED
    prevented = visitor_client.get(f"{base}?format=json").json()["prevented"]
    assert all("cancelled" in why for why in prevented.values())
