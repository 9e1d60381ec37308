"""Tools over HTTP, on both databases."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.config import Loaded

ONE_DATABASE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
DOUBLE = """
    type: python
    description: Twice a number.
    tags: [doubling]
    {more}
    input_schema:
      type: object
      properties: {{n: {{type: number}}}}
      required: [n]
    python:
      source: |
        def run(n):
            return {{"twice": n * {factor}}}
    examples:
      - {{input: {{n: 2}}, output: {{twice: 4}}}}
    """
READ = ("", "/versions")
WRITTEN: dict[str, Any] = {
    "/run": {},
    "/test": None,
    "/pin": {"version": "1.0.0"},
    "/unpin": None,
    "/rollback": None,
    "/evolve": None,
    "/feedback": {"task": "double", "good": True},
}


def define(loaded: Loaded, factor: int = 2, more: str = "version: 1.0.0") -> None:
    folder = loaded.home / "tools"
    folder.mkdir(exist_ok=True)
    (folder / "double.yaml").write_text(textwrap.dedent(DOUBLE).format(factor=factor, more=more))


@pytest.fixture
def double(loaded: Loaded) -> str:
    define(loaded)
    return "double"


def test_a_tool_is_shown_called_and_on_record(api: TestClient, double: str) -> None:
    told = api.get("/tools/double").json()
    assert (told["version"], told["type"], told["examples"], told["stats"]["runs"]) == (
        "1.0.0",
        "python",
        1,
        0,
    )
    answer = api.post("/tools/double/run", json={"inputs": {"n": 4}})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["ok"], answer.json()["value"]) == (True, {"twice": 8})
    assert answer.json()["metrics"]["wall_ms"] > 0
    failed = api.post("/tools/double/run", json={"inputs": {"n": "four"}})
    assert (failed.status_code, failed.json()["ok"]) == (200, False)
    assert "do not fit" in failed.json()["error"]
    stats = api.get("/tools/double").json()["stats"]
    assert (stats["runs"], stats["failures"]) == (2, 1)
    tested = api.post("/tools/double/test").json()
    assert (tested["passed"], tested["examples"][0]["got"]) == (True, {"twice": 4})


def test_versions_are_listed_pinned_and_taken_back(api: TestClient, loaded: Loaded, double: str) -> None:
    assert api.get("/tools/double").json()["version"] == "1.0.0"
    define(loaded, factor=3, more="change_type: minor")
    page = api.get("/tools/double/versions", params={"limit": 1}).json()
    assert [(each["version"], each["is_called"]) for each in page["items"]] == [("1.1.0", True)]
    rest = api.get("/tools/double/versions", params={"before": page["next"]}).json()
    assert [each["version"] for each in rest["items"]] == ["1.0.0"]
    pinned = api.post("/tools/double/pin", json={"version": "1.0.0"}).json()
    assert (pinned["version"], pinned["pinned"]) == ("1.0.0", True)
    assert api.post("/tools/double/run", json={"inputs": {"n": 1}}).json()["value"] == {"twice": 2}
    assert api.post("/tools/double/rollback").status_code == 409
    assert api.post("/tools/double/evolve").status_code == 409
    assert api.post("/tools/double/pin", json={"version": "9.9.9"}).status_code == 404
    assert api.post("/tools/double/unpin").json()["version"] == "1.1.0"
    assert api.post("/tools/double/rollback").json()["version"] == "1.0.0"
    assert api.post("/tools/double/rollback").status_code == 409


@ONE_DATABASE
def test_tools_are_listed_by_name_in_pages_and_by_type_and_tag(api: TestClient, double: str) -> None:
    first = api.get("/tools", params={"limit": 2})
    names = [each["tool"] for each in first.json()["items"]]
    assert names == sorted(names)
    assert first.headers["Link"].endswith('rel="next"')
    rest = api.get(first.headers["Link"].split(">")[0][1:]).json()
    assert min(each["tool"] for each in rest["items"]) > names[-1]
    tagged = api.get("/tools", params={"tag": "doubling"}).json()
    assert ([each["tool"] for each in tagged["items"]], tagged["next"]) == (["double"], None)
    assert {each["type"] for each in api.get("/tools", params={"type": "llm"}).json()["items"]} == {"llm"}
    assert api.get("/tools", params={"type": "colour"}).status_code == 422


@pytest.mark.soak
@ONE_DATABASE
def test_a_search_explains_itself_and_takes_what_people_say_into_account(
    api: TestClient, double: str
) -> None:
    task = {"q": "twice a number", "tag": "doubling"}
    [found] = api.get("/tools/search", params=task).json()
    assert (found["tool"], found["reasons"][0]["why"] != "") == ("double", True)
    said = {"task": "twice a number", "good": True}
    assert api.post("/tools/double/feedback", json=said).status_code == 204
    [again] = api.get("/tools/search", params=task).json()
    assert again["fitness"] > found["fitness"]
    assert api.get("/tools/search").status_code == 422


@ONE_DATABASE
def test_a_tool_that_there_is_not_is_404_everywhere(api: TestClient) -> None:
    answers = [api.get(f"/tools/nothing_like_it{path}") for path in READ]
    answers += [api.post(f"/tools/nothing_like_it{path}", json=body) for path, body in WRITTEN.items()]
    assert [(each.request.url.path, each.status_code) for each in answers if each.status_code != 404] == []


@ONE_DATABASE
@pytest.mark.parametrize("name", ["%00", "..%2f..%2fetc", "x" * 5000, "a%0ab", "%ed%a0%80"])
def test_strange_names_name_nothing(api: TestClient, name: str) -> None:
    assert api.get(f"/tools/{name}").status_code in (404, 422)
    assert api.post(f"/tools/{name}/run", json={}).status_code in (404, 422)


@ONE_DATABASE
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/run", {"inputs": []}),
        ("/run", {"inputs": {}, "timeout": 0}),
        ("/run", {"inputs": {}, "timeout": 1e9}),
        ("/run", {"colour": "red"}),
        ("/pin", {}),
        ("/feedback", {"task": "", "good": True}),
        ("/feedback", {"task": "x", "good": "yes"}),
        ("/evolve", {"engine": "replay:/etc/passwd"}),
    ],
)
def test_what_cannot_be_meant_is_refused(
    api: TestClient, double: str, path: str, body: dict[str, Any]
) -> None:
    assert api.post(f"/tools/double{path}", json=body).status_code == 422


@ONE_DATABASE
def test_a_tool_that_no_real_call_is_known_of_cannot_be_evolved(api: TestClient, double: str) -> None:
    refused = api.post("/tools/double/evolve", json={"engine": "codex"})
    assert (refused.status_code, "no real input" in refused.json()["detail"]) == (422, True)


@ONE_DATABASE
def test_a_tool_that_is_called_too_often_is_429(api: TestClient, loaded: Loaded) -> None:
    define(loaded, more="constraints: {max_calls_per_hour: 1}")
    assert api.post("/tools/double/run", json={"inputs": {"n": 1}}).json()["ok"] is True
    refused = api.post("/tools/double/run", json={"inputs": {"n": 1}})
    assert (refused.status_code, "1 times an hour" in refused.json()["detail"]) == (429, True)


@ONE_DATABASE
def test_a_tool_that_a_workflow_brings_is_found_by_both_names(api: TestClient) -> None:
    spec = {
        "workflow_id": "sums",
        "steps": [{"step_id": "a", "type": "python_tool", "tool": "double", "input_mapping": {"n": 2}}],
        "tools": {"double": {"type": "python", "source_code": "def run(n):\n    return n * 2\n"}},
    }
    assert api.post("/workflows", json={"spec": {**spec, "portable": True}}).status_code == 201
    assert api.post("/workflows/sums/runs", json={}).status_code == 202
    assert api.get("/tools/double").status_code == 404
    found = api.get("/tools/double", params={"workflow": "sums"}).json()
    assert (found["tool"], found["version"]) == ("sums/double", "1.0.0")
    called = api.post("/tools/double/run", params={"workflow": "sums"}, json={"inputs": {"n": 4}}).json()
    assert (called["ok"], called["value"]) == (True, 8)
    held = api.post("/tools/double/pin", params={"workflow": "sums"}, json={"version": "1.0.0"})
    assert (held.status_code, held.json()["pinned"]) == (200, True)
    assert api.post("/tools/double/rollback", params={"workflow": "sums"}).status_code == 409
    assert api.get("/tools/double", params={"workflow": "other"}).status_code == 404
