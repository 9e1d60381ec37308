"""Workflows over HTTP, on both databases."""

from __future__ import annotations

import io
import time
import zipfile
from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator

from ratchet.ledger import Ledger
from ratchet.ledger.runs import create_run
from ratchet.ledger.workflows import get_workflow
from ratchet.runtime import list_jobs
from tests.cli.workflow_files import COUNT, counting, step, workflow

ONE_DATABASE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
NAME = "counting"
READ = ("", "/waves", "/runs", "/profile")
WRITTEN: dict[str, Any] = {"/runs": {}, "/evolve": None, "/export": {"target": "embedded"}}


@pytest.fixture
def saved(api: TestClient) -> str:
    answer = api.post("/workflows", json={"spec": counting()})
    assert answer.status_code == 201, answer.text
    return NAME


def test_workflows_are_saved_listed_in_pages_and_deleted(api: TestClient, ledger: Ledger) -> None:
    assert api.get("/workflows").json() == {"items": [], "next": None}
    for name in ("one", "two", "three"):
        answer = api.post("/workflows", json={"spec": counting(), "name": name})
        assert (answer.status_code, answer.headers["Location"]) == (201, f"/workflows/{name}")
    page = api.get("/workflows", params={"limit": 2}).json()
    assert [each["name"] for each in page["items"]] == ["three", "two"]
    rest = api.get("/workflows", params={"before": page["next"]}).json()
    assert ([each["name"] for each in rest["items"]], rest["next"]) == (["one"], None)
    told = api.get("/workflows/one").json()
    with ledger.read() as tx:
        saved = get_workflow(tx, "one")
    assert (told["spec"], told["hash"], told["origin"]) == (saved.spec, saved.hash, "api")
    assert (told["steps"], told["planned_by"], told["runs"]) == (4, None, [])
    assert told["waves"] == [["split"], ["count", "longest"], ["tell"]]
    assert api.get("/workflows/one/waves").json() == told["waves"]
    assert api.delete("/workflows/one").status_code == 204
    assert api.get("/workflows/one").status_code == 404
    assert api.delete("/workflows/one").status_code == 404


def test_a_workflow_that_there_is_not_is_404_everywhere(api: TestClient) -> None:
    answers = [api.get(f"/workflows/nobody{path}") for path in READ]
    answers += [api.post(f"/workflows/nobody{path}", json=body) for path, body in WRITTEN.items()]
    assert [(each.request.url.path, each.status_code) for each in answers if each.status_code != 404] == []
    assert answers[0].json()["type"] == "urn:ratchet:problem:not-found"


@ONE_DATABASE
@pytest.mark.parametrize("name", ["%00", "..%2f..%2fetc", "x" * 5000, "a%0ab", "%ed%a0%80"])
def test_strange_names_name_nothing(api: TestClient, name: str) -> None:
    assert api.get(f"/workflows/{name}").status_code in (404, 422)
    assert api.delete(f"/workflows/{name}").status_code in (404, 422)
    assert api.post(f"/workflows/{name}/runs", json={}).status_code in (404, 422)


@ONE_DATABASE
def test_everything_that_is_wrong_with_a_workflow_is_named(api: TestClient) -> None:
    wrong = workflow(
        [
            step("a", "count", input_mapping={"words": "steps.b.output"}),
            step("b", "count", input_mapping={"words": "steps.a.output"}, depends_on=["nobody"]),
        ],
        {"count": COUNT},
    )
    told = api.post("/workflows/validate", json={"spec": wrong}).json()
    assert told["valid"] is False
    assert any("a → b → a" in problem for problem in told["problems"])
    refused = api.post("/workflows", json={"spec": wrong})
    assert refused.status_code == 422
    assert ("a → b → a" in refused.json()["detail"], "nobody" in refused.json()["detail"]) == (True, True)
    assert api.post("/workflows/validate", json={"spec": counting()}).json() == {
        "valid": True,
        "problems": [],
    }
    unknown = workflow([step("a", "nothing_like_it", type="existing_tool")], portable=False)
    assert api.post("/workflows/validate", json={"spec": unknown}).json()["valid"] is False


@ONE_DATABASE
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"spec": None},
        {"spec": []},
        {"spec": "x"},
        {"spec": {}},
        {"spec": {"workflow_id": "x", "steps": 7}},
        {"spec": {"workflow_id": "../x", "steps": [step("a", "identity", type="existing_tool")]}},
        {"spec": {"workflow_id": "x", "steps": [{"step_id": "a", "type": "bogus"}]}},
        {
            "spec": {
                "workflow_id": "x",
                "steps": [{"step_id": "a", "type": "python_tool", "tool_path": "/etc/passwd"}],
            }
        },
        {
            "spec": {
                "workflow_id": "x",
                "steps": [{"step_id": "a", "type": "sub_workflow", "workflow_path": "../x.json"}],
            }
        },
        {"spec": {}, "colour": "red"},
    ],
)
def test_what_is_no_workflow_is_not_saved(api: TestClient, body: dict[str, Any]) -> None:
    answer = api.post("/workflows", json=body)
    assert answer.status_code == 422, answer.text
    assert api.get("/workflows").json()["items"] == []


@ONE_DATABASE
def test_no_file_of_the_server_is_read_for_a_workflow_that_was_sent(api: TestClient) -> None:
    inner = {"step_id": "a", "type": "sub_workflow", "workflow_path": "/etc/passwd"}
    assert api.post("/workflows", json={"spec": {"workflow_id": "x", "steps": [inner]}}).status_code == 201
    refused = api.post("/workflows/x/runs", json={})
    assert refused.status_code in (404, 422)
    assert "root:" not in refused.text


@ONE_DATABASE
def test_the_schema_is_published_and_holds_for_a_good_workflow(api: TestClient) -> None:
    schema = api.get("/workflows/schema").json()
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(counting())
    assert not Draft202012Validator(schema).is_valid({"workflow_id": "x", "steps": [{"type": "bogus"}]})


def test_a_run_is_started_and_carried_by_a_worker(working_api: TestClient) -> None:
    api = working_api
    assert api.post("/workflows", json={"spec": counting()}).status_code == 201
    answer = api.post(f"/workflows/{NAME}/runs", json={"inputs": {"text": "one two three"}})
    assert answer.status_code == 202, answer.text
    run = answer.json()
    assert (run["workflow"], run["action"]) == (NAME, "run")
    place = answer.headers["Location"]
    assert place == f"/workflows/runs/{run['run_id']}"
    told = _ended(api, place)
    assert (told["status"], told["outputs"]) == ("completed", {"told": "3 words, the longest is three"})
    assert {name: record["status"] for name, record in told["steps"].items()} == dict.fromkeys(
        ("split", "count", "longest", "tell"), "completed"
    )
    assert told["steps"]["split"]["metrics"]["exit_code"] == 0
    [listed] = api.get(f"/workflows/{NAME}/runs").json()["items"]
    assert listed["run_id"] == run["run_id"]
    assert api.get("/workflows/runs").json()["items"] == [listed]
    assert api.get("/workflows").json()["items"][0]["last_run"] == listed
    profile = api.get(f"/workflows/{NAME}/profile").json()
    assert (profile["runs"], len(profile["steps"])) == ([run["run_id"]], 4)
    assert profile["critical_path"][0] == "split"
    assert api.get(f"/workflows/{NAME}/profile", params={"last": 0}).status_code == 422


@ONE_DATABASE
def test_every_input_that_is_wrong_is_named_and_no_run_is_started(api: TestClient, saved: str) -> None:
    refused = api.post(f"/workflows/{saved}/runs", json={"inputs": {"colour": "red"}})
    assert refused.status_code == 422
    detail = refused.json()["detail"]
    assert ("Missing required input: text" in detail, "Unknown input: colour" in detail) == (True, True)
    for wrong in (
        {"inputs": []},
        {"inputs": {"text": 1}},
        {"priority": 10},
        {"inputs": {"text": "a"}, "x": 1},
    ):
        assert api.post(f"/workflows/{saved}/runs", json=wrong).status_code == 422
    assert api.get("/workflows/runs").json()["items"] == []


@ONE_DATABASE
def test_a_run_takes_its_options(api: TestClient, ledger: Ledger, saved: str) -> None:
    body = {"inputs": {"text": "a"}, "cached": False, "spread": True, "background": True, "simulated": True}
    run = api.post(f"/workflows/{saved}/runs", json=body).json()
    assert (run["simulated"], run["status"]) == (True, "pending")
    spec = api.get(f"/runs/{run['run_id']}").json()["spec"]
    assert (spec["cached"], spec["spread"]) == (False, True)
    with ledger.read() as tx:
        assert [job.priority for job in list_jobs(tx, run_id=run["run_id"])] == [9]
    assert api.get(f"/workflows/runs/{run['run_id']}").json()["steps"] == {}


@ONE_DATABASE
def test_a_run_of_another_kind_is_not_one_of_a_workflow(api: TestClient, ledger: Ledger) -> None:
    with ledger.write() as tx:
        create_run(tx, "research", "other")
    assert api.get("/workflows/runs/1").status_code == 404
    assert api.get("/workflows/runs/2").status_code == 404
    assert api.get("/workflows/runs/0").status_code == 422


def test_a_sentence_is_planned_by_a_worker(api: TestClient) -> None:
    wish = {
        "sentence": "Count the words of a text.",
        "name": "wished",
        "engine": "llm",
        "model": "gpt-5.5",
        "reuse": False,
    }
    answer = api.post("/workflows/plan", json=wish)
    assert answer.status_code == 202, answer.text
    assert answer.json()["action"] == "plan"
    told = api.get(answer.headers["Location"]).json()
    assert (told["status"], told["result"]) == ("pending", None)
    spec = api.get(f"/runs/{told['run_id']}").json()["spec"]
    assert (spec["sentence"], spec["name"], spec["reuse"]) == ("Count the words of a text.", "wished", False)


@ONE_DATABASE
@pytest.mark.parametrize(
    "wrong",
    [
        {"sentence": ""},
        {"sentence": "   "},
        {"sentence": "x" * 20_000},
        {"engine": "nobody"},
        {"engine": "replay:/etc/passwd"},
        {"name": "../x"},
        {"colour": "red"},
    ],
)
def test_a_wish_that_can_never_work_is_refused(api: TestClient, wrong: dict[str, Any]) -> None:
    answer = api.post("/workflows/plan", json={"sentence": "Count.", **wrong})
    assert answer.status_code == 422, answer.text
    assert api.get("/workflows/runs").json()["items"] == []


@ONE_DATABASE
def test_an_export_is_a_zip(api: TestClient, saved: str) -> None:
    answer = api.post(f"/workflows/{saved}/export", json={"target": "embedded"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/zip"), answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {"README.md", "run_workflow.py", "workflow.json"} <= set(archive.namelist())
    assert api.post(f"/workflows/{saved}/export", json={"target": "moon"}).status_code == 422
    assert api.post(f"/workflows/{saved}/export", json={"target": "moon"}).status_code == 422
    assert api.post(f"/workflows/{saved}/export", json={"target": "cloud", "run_id": 99}).status_code == 404


def _ended(api: TestClient, place: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        told: dict[str, Any] = api.get(place).json()
        if told["status"] in ("completed", "failed", "cancelled"):
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
