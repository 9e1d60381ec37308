"""Research over HTTP: starting runs, steering them, and all that can be seen of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson, get_standing
from ratchet.ledger.runs import create_run, get_run
from ratchet.ledger.tables import trials
from ratchet.research import operations, views
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.views import leaderboard_of
from ratchet.runtime import Worker
from ratchet.server.operation import shown
from tests.research.hill import write_hill
from tests.research.views.made_up import make_baseline, make_run, submit, try_out
from tests.server.conftest import client_of
from tests.waiting import eventually

SHIPPED = {"bin_packing", "circle_packing", "digits96", "nanotree", "tiny_lm"}
VIEWS = ("leaderboard", "tree", "knowledge", "activity", "misses", "yield", "cost", "lessons", "calibration")


@pytest.fixture
def run_id(ledger: Ledger) -> int:
    """A run of five trials, one of them in flight, as a supervisor would leave it."""
    run_id = make_run(ledger)
    make_baseline(ledger, run_id)
    try_out(ledger, run_id, "keep", 1.1, "an idea that helps", expected_delta="0.2")
    try_out(ledger, run_id, "crash", reason="ValueError: no way", specialist="arch", parent=1)
    try_out(ledger, run_id, "discard", 1.095, "nearly as good", parent=1, expected_delta="-0.1")
    submit(ledger, run_id, "still being measured", specialist="arch", parent=1)
    with ledger.write() as tx:
        add_lesson(tx, run_id, "opt", "small steps help", trial=1)
    return run_id


def started(api: TestClient, **fields: object) -> Any:
    return api.post("/research", json={"task": "circle_packing", "engine": "search", "trials": 5, **fields})


def test_a_run_is_started_and_waits_for_a_worker(api: TestClient, ledger: Ledger) -> None:
    answer = started(api, name="circles", keep_policy="strict", tokens=1_000, specialists=[])
    assert answer.status_code == 201
    run = answer.json()
    assert answer.headers["Location"] == f"/research/{run['id']}"
    assert (run["kind"], run["name"], run["status"]) == ("research", "circles", "pending")
    assert (run["spec"]["task"], run["spec"]["engine"], run["spec"]["trials"]) == (
        "circle_packing",
        "search",
        5,
    )
    with ledger.read() as tx:
        assert get_standing(tx, run["id"]).keep_policy == "strict"
    events = api.get(f"/runs/{run['id']}/events").json()["items"]
    assert {event["actor"] for event in events} == {"api"}
    assert {event["request_id"] for event in events} == {answer.headers["X-Request-ID"]}


def test_every_field_of_a_run_can_be_asked_for() -> None:
    assert set(operations.start.parameters) == {each.name for each in fields(ResearchRequest)}


def test_every_field_reaches_the_run(api: TestClient, ledger: Ledger) -> None:
    given = {
        "task": "circle_packing:single",
        "name": "mine",
        "engine": "search",
        "model": "m",
        "specialists": [],
        "keep_policy": "strict",
        "lineage": False,
        "parallel": 3,
        "seed": 7,
        "trials": 5,
        "hours": 1.5,
        "hours_without_keep": 1,
        "baseline_score": 0.5,
    }
    run = api.post("/research", json={**given, "simulated": True}).json()
    assert run["simulated"]
    told = run["spec"]
    assert told.pop("variant") == "single"
    assert {name: told[name] for name in given if name != "name"} == {
        name: value for name, value in given.items() if name != "name"
    }


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"task": "./hill"}, "only those can be named here"),
        ({"task": "/etc"}, "only those can be named here"),
        ({"task": ".."}, "only those can be named here"),
        ({"task": "..:single"}, "only those can be named here"),
        ({"task": ""}, "at least 1 character"),
        ({"task": "a\nb"}, "control characters"),
        ({"task": None}, "body.task"),
        ({"variant": "nobody"}, "variant"),
        ({"task": "circle_packing:single", "variant": "other"}, "'other' is asked for"),
        ({"name": "7"}, "cannot be called '7'"),
        ({"name": " "}, "cannot be called ' '"),
        ({"name": "x" * 201}, "at most 200 characters"),
        ({"engine": "nobody"}, "no engine 'nobody'"),
        ({"engine": "replay:/etc/passwd"}, "cannot be named over HTTP"),
        ({"specialists": ["nobody"]}, "no specialist 'nobody'"),
        ({"specialists": "opt"}, "body.specialists"),
        ({"keep_policy": "lucky"}, "no keep policy 'lucky'"),
        ({"trials": 0}, "body.trials"),
        ({"trials": 10**30}, "body.trials"),
        ({"trials": "5"}, "body.trials"),
        ({"trials": True}, "body.trials"),
        ({"trials": None}, "nothing would ever stop this run"),
        ({"hours": -1}, "body.hours"),
        ({"parallel": 100_000}, "body.parallel"),
        ({"seed": -1}, "body.seed"),
        ({"seed": 2**53}, "body.seed"),
        ({"cost_usd": 1e300}, "body.cost_usd"),
        ({"lineage": "no"}, "body.lineage"),
        ({"triels": 5}, "body.triels"),
    ],
)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_can_never_work_is_422_and_starts_nothing(
    api: TestClient, wrong: dict[str, Any], told: str
) -> None:
    answer = started(api, **wrong)
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
    assert told in answer.json()["detail"]
    assert api.get("/research").json()["items"] == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_baseline_that_is_no_number_is_422(api: TestClient, number: str) -> None:
    body = f'{{"task": "circle_packing", "trials": 1, "baseline_score": {number}}}'
    answer = api.post("/research", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


def test_a_task_that_is_not_installed_is_404(api: TestClient) -> None:
    answer = started(api, task="square_packing")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:ratchet:problem:not-found")
    assert "circle_packing" in answer.json()["hint"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_folder_of_the_server_is_never_taken_for_a_task(
    api: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one that lies where the server was started, under a name without a slash."""
    write_hill(tmp_path / "hill")
    (tmp_path / "hill" / "task.py").write_text("raise SystemExit('this code was run')\n")
    monkeypatch.chdir(tmp_path)
    assert started(api, task="hill").status_code == 404
    assert started(api, task="hill:single").status_code == 404
    for path in ("./hill", str(tmp_path / "hill")):
        assert started(api, task=path).status_code == 422
    write_hill(tmp_path / "circle_packing")
    assert api.post("/research", json={"task": "circle_packing", "trials": 1}).status_code == 201
    assert api.get("/research/circle_packing").json()["score_field"] != "height"


def test_the_installed_tasks_are_listed(api: TestClient) -> None:
    listed = api.get("/research/tasks").json()
    tasks = {each["name"]: each for each in listed["items"]}
    assert tasks.keys() >= SHIPPED
    assert listed["next"] is None
    assert tasks["circle_packing"]["direction"] == "max"
    assert tasks["circle_packing"]["problem"] is None
    assert "single" in tasks["circle_packing"]["variants"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_task_that_cannot_be_loaded_hides_no_other(
    api: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "site" / "torn-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: torn\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[ratchet.tasks]\ntorn = no_such_module:task\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    tasks = {each["name"]: each for each in api.get("/research/tasks").json()["items"]}
    assert "no_such_module" in tasks["torn"]["problem"]
    assert tasks["circle_packing"]["problem"] is None


def test_research_runs_are_listed_page_by_page(api: TestClient, ledger: Ledger) -> None:
    made = [make_run(ledger) for _ in range(3)]
    first = api.get("/research", params={"limit": 2})
    assert [run["id"] for run in first.json()["items"]] == [made[2], made[1]]
    rest = api.get(first.headers["Link"].partition(">")[0].lstrip("<")).json()
    assert ([run["id"] for run in rest["items"]], rest["next"]) == ([made[0]], None)
    assert api.get("/research?status=running").json()["items"] == []


def test_a_run_is_found_by_its_number_and_by_its_name(api: TestClient, ledger: Ledger, run_id: int) -> None:
    newest = make_run(ledger)
    assert api.get(f"/research/{run_id}").json()["run"] == run_id
    assert api.get("/research/a run").json()["run"] == newest
    assert api.get("/research/another").status_code == 404


def test_the_status_says_what_the_ledger_knows(api: TestClient, ledger: Ledger, run_id: int) -> None:
    told = api.get(f"/research/{run_id}").json()
    with ledger.read() as tx:
        assert told == shown(views.read_status(tx, run_id).answer()).model_dump(mode="json")
    assert (told["trials"], told["by_status"]) == (4, {"keep": 1, "discard": 1, "crash": 1})
    assert (told["best"]["exp_id"], told["best"]["score"]) == ("001", 1.1)
    assert (told["baseline"]["exp_id"], told["baseline"]["score"]) == ("000", 1.0)
    assert told["in_flight"] == ["004"]


def test_every_view_says_what_the_ledger_knows(api: TestClient, ledger: Ledger, run_id: int) -> None:
    with ledger.read() as tx:
        known = {
            "leaderboard": leaderboard_of(tx, run_id),
            "tree": views.tree(tx, run_id),
            "knowledge": views.knowledge(tx, run_id),
            "activity": views.recent_activity(tx, run_id),
            "misses": views.near_misses(tx, run_id),
            "yield": views.yields(tx, run_id),
            "cost": views.cost(tx, run_id),
            "lessons": views.insights(tx, run_id),
            "calibration": views.calibration(tx, run_id),
        }
    assert known.keys() == set(VIEWS)
    for name, view in known.items():
        answer = view.answer()
        items = answer if isinstance(answer, list) else [answer]
        known_items = [shown(each).model_dump(mode="json") for each in items]
        assert known_items, name
        said = api.get(f"/research/{run_id}/{name}").json()
        assert (said if isinstance(said, list) else [said]) == known_items, name


def test_views_can_be_narrowed(api: TestClient, run_id: int) -> None:
    def ids(path: str) -> list[str]:
        return [each["exp_id"] for each in api.get(f"/research/{run_id}/{path}").json()]

    assert ids("activity?limit=2") == ["004", "003"]
    assert ids("activity?specialist=arch") == ["004", "002"]
    assert ids("misses?limit=1") == ["003"]
    assert api.get(f"/research/{run_id}/tree?trial=exp_003").json()["focus"] == 3
    assert api.get(f"/research/{run_id}/tree?trial=75").status_code == 404
    assert api.get(f"/research/{run_id}/tree?trial=last").status_code == 422


def test_trials_come_last_first_page_by_page_and_by_specialist(api: TestClient, run_id: int) -> None:
    path = f"/research/{run_id}/trials"
    first = api.get(path, params={"limit": 3}).json()
    assert [each["exp_id"] for each in first["items"]] == ["004", "003", "002"]
    assert [each["status"] for each in first["items"]] == ["running", "discard", "crash"]
    rest = api.get(path, params={"limit": 3, "before": first["next"]}).json()
    assert ([each["exp_id"] for each in rest["items"]], rest["next"]) == (["001", "000"], None)
    own = api.get(path, params={"specialist": "arch"}).json()
    assert [each["exp_id"] for each in own["items"]] == ["004", "002"]
    assert api.get(path, params={"specialist": "nobody"}).json() == {"items": [], "next": None}


def test_a_trial_is_shown_whole(api: TestClient, ledger: Ledger, run_id: int) -> None:
    long = "because " * 1000
    number = try_out(ledger, run_id, "crash", reason=long, measurements={"means": {"odd": "\ud800"}})
    listed = api.get(f"/research/{run_id}/trials?limit=1").json()["items"][0]
    whole = api.get(f"/research/{run_id}/trials/{number}").json()
    assert (whole["exp_id"], whole["parent"], whole["status"]) == ("005", "000", "crash")
    assert whole["reason"] == long
    assert len(listed["reason"]) < len(long)
    assert whole["measurements"] == {"means": {"odd": "?"}}
    assert (whole["certificate_content"], whole["certificate_problems"]) == (None, [])
    assert whole["started_at"].endswith("Z")


@pytest.mark.parametrize(
    ("exp", "code"), [("75", 404), ("last", 422), ("-1", 422), ("9" * 50, 422), ("%00", 422)]
)
def test_a_trial_that_is_not_there_is_named(api: TestClient, run_id: int, exp: str, code: int) -> None:
    assert api.get(f"/research/{run_id}/trials/{exp}").status_code == code
    assert api.get(f"/research/{run_id}/trials/{exp}/diff").status_code == code


def test_a_trial_without_files_has_no_diff(api: TestClient, run_id: int) -> None:
    answer = api.get(f"/research/{run_id}/trials/1/diff")
    assert answer.status_code == 404
    assert "commit of trial 001" in answer.json()["detail"]


@pytest.mark.parametrize(
    "path", ["", "/trials", "/trials/0", "/trials/0/diff", "/report", *(f"/{v}" for v in VIEWS)]
)
def test_a_run_that_is_not_there_is_404_everywhere(api: TestClient, path: str) -> None:
    for run in ("9", "nobody", str(2**63), "9" * 150, "%00", "%ed%a0%80", "'; DROP TABLE runs; --"):
        assert api.get(f"/research/{run}{path}").status_code == 404, run
    assert api.get(f"/research/{'x' * 201}{path}").status_code == 422


@pytest.mark.soak
def test_research_needs_the_token(worker: Worker, loaded: Loaded) -> None:
    stranger = client_of(worker.runtime, loaded, worker, token=None)
    for path in (
        "/research",
        "/research/tasks",
        "/research/1",
        "/research/1/report",
        "/research/1/trials/0/diff",
    ):
        assert stranger.get(path).status_code == 401
    assert stranger.post("/research", json={"task": "circle_packing", "trials": 1}).status_code == 401
    assert stranger.post("/research/1/stop").status_code == 401


def test_a_run_is_paused_resumed_and_stopped(api: TestClient) -> None:
    run_id = started(api).json()["id"]
    for action, status in [
        ("pause", "paused"),
        ("pause", "paused"),
        ("resume", "running"),
        ("stop", "cancelled"),
    ]:
        answer = api.post(f"/research/{run_id}/{action}")
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert api.post("/research/circle_packing/stop").json()["status"] == "cancelled"


def test_an_illegal_change_is_409(api: TestClient, ledger: Ledger) -> None:
    run_id = started(api).json()["id"]
    resumed = api.post(f"/research/{run_id}/resume")
    assert (resumed.status_code, resumed.json()["type"]) == (409, "urn:ratchet:problem:state-changed")
    api.post(f"/research/{run_id}/stop")
    for action in ("pause", "resume"):
        assert api.post(f"/research/{run_id}/{action}").status_code == 409
    for action in ("pause", "resume", "stop"):
        assert api.post(f"/research/9/{action}").status_code == 404


def test_the_actions_are_for_research_only(api: TestClient, ledger: Ledger) -> None:
    with ledger.write() as tx:
        other = create_run(tx, "workflow", "w")
    for action in ("pause", "resume", "stop"):
        assert api.post(f"/research/{other}/{action}").status_code == 404
    with ledger.read() as tx:
        assert get_run(tx, other).status is RunStatus.PENDING


@pytest.mark.soak
def test_a_real_run_has_diffs_certificates_and_a_report(
    working_api: TestClient, worker: Worker, ledger: Ledger, tmp_path: Path
) -> None:
    api = working_api
    wanted = ResearchRequest(task=str(write_hill(tmp_path / "hill")), engine="search", trials=8)
    run_id = start_research(worker.runtime, wanted)
    eventually(lambda: api.get(f"/research/{run_id}").json()["status"] == "completed")
    best = api.get(f"/research/{run_id}").json()["best"]
    [leader, *_] = api.get(f"/research/{run_id}/leaderboard").json()
    assert leader["exp_id"] == best["exp_id"]
    assert leader["measurements"].keys() == {"x", "y"}

    trial = api.get(f"/research/{run_id}/trials/{best['exp_id']}").json()
    assert trial["certificate_content"]["commit"] == trial["commit"]
    assert trial["certificate_problems"] == []
    diff = api.get(f"/research/{run_id}/trials/{best['exp_id']}/diff")
    assert (diff.status_code, diff.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert diff.headers["X-Content-Type-Options"] == "nosniff"
    assert "+X = " in diff.text
    assert api.get(f"/research/{run_id}/trials/000/diff").text == ""

    report = api.get(f"/research/{run_id}/report")
    assert report.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = report.headers["Content-Security-Policy"].split("; ")
    assert {"sandbox", "default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} <= set(policy)
    assert "script-src" not in report.headers["Content-Security-Policy"]
    assert "What the best changed" in report.text
    assert "Improvement certificate" in report.text


def test_a_certificate_that_contradicts_itself_is_told(api: TestClient, ledger: Ledger, run_id: int) -> None:
    with ledger.write() as tx:
        forged = ledger.artifacts.put(tx, b'{"score": 2.0}', name="certificate.json", run_id=run_id)
        tx.connection.execute(sa.update(trials).where(trials.c.number == 1).values(certificate=forged.sha256))
    trial = api.get(f"/research/{run_id}/trials/1").json()
    assert trial["certificate_content"] == {"score": 2.0}
    assert trial["certificate_problems"] != []


def test_the_report_of_made_up_texts_holds_no_markup_of_theirs(
    api: TestClient, ledger: Ledger, run_id: int
) -> None:
    try_out(ledger, run_id, "keep", 2.0, "<script>alert(1)</script> <img src=x onerror=alert(1)>")
    page = api.get(f"/research/{run_id}/report")
    assert page.status_code == 200
    assert "<script" not in page.text
    assert "<img" not in page.text
