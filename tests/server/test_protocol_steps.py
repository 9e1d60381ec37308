"""Steps of protocols over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import Outcome, StepStatus, Usage
from ratchet.ledger import Budgets, Ledger, Spender, change_step
from ratchet.ledger.runs import close_attempt, create_run, create_steps, get_step, open_attempt
from ratchet.ledger.usage import add_session, charge
from tests.server.protocol_things import new_project, new_protocol, new_step, ok

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
BAD: list[dict[str, object]] = [
    {"step_index": -1},
    {"step_index": 2**31},
    {"step_index": "0"},
    {"step_name": ""},
    {"step_name": "../../x"},
    {"step_type": "dance"},
    {"status": "completed"},
    {"status": "running"},
    {"policy": "loop"},
    {"policy": [7]},
    {"policy": {"behavior": "explode", "module_id": "m"}},
    {"depends_on": ["nobody"]},
    {"engine_id": "replay:/dev/zero"},
    {"engine_id": "replay:/etc/passwd"},
    {"policy": {"behavior": "trigger", "module_id": "m", "engine": "replay:/etc/passwd"}},
    {"colour": "red"},
]


@pytest.fixture
def protocol(api: TestClient) -> int:
    return new_protocol(api, new_project(api))


def test_a_step_is_added_as_pending(api: TestClient, protocol: int) -> None:
    policy = {"module_id": "checker", "behavior": "loop", "max_iterations": 2, "step_back": 1}
    body = {
        "step_index": 0,
        "step_name": "00-plan",
        "step_type": "work",
        "status": "pending",
        "engine_id": "codex",
        "model": "m",
        "policy": policy,
        "summary": "first",
    }
    made = ok(api.post(f"/protocols/{protocol}/steps", json=body))
    assert {**made, "policy": made["policy"][0]} | body == {**made, "policy": policy}
    assert (made["status"], made["retries"], made["runtime_state"]) == ("pending", 0, None)
    assert ok(api.get(f"/protocols/{protocol}/steps")) == [made]


@on_sqlite
def test_bad_values_are_422_and_add_nothing(api: TestClient, protocol: int) -> None:
    for change in BAD:
        body = {"step_index": 0, "step_name": "00-plan", "step_type": "work"} | change
        assert api.post(f"/protocols/{protocol}/steps", json=body).status_code == 422, change
    assert ok(api.get(f"/protocols/{protocol}/steps")) == []
    assert ok(api.get(f"/protocols/{protocol}/spec"))["spec"] is None


def test_a_place_and_a_name_are_taken_once(api: TestClient, protocol: int) -> None:
    new_step(api, protocol, 0, "00-a")
    for index, name in ((0, "00-b"), (1, "00-a")):
        body = {"step_index": index, "step_name": name, "step_type": "work"}
        assert api.post(f"/protocols/{protocol}/steps", json=body).status_code == 409
    assert len(ok(api.get(f"/protocols/{protocol}/spec"))["spec"]["steps"]) == 1


def test_steps_are_in_their_order_and_so_is_the_spec(api: TestClient, protocol: int) -> None:
    for index in (4, 1, 2):
        new_step(api, protocol, index)
    page = api.get(f"/protocols/{protocol}/steps", params={"limit": 2})
    assert [each["step_index"] for each in page.json()] == [1, 2]
    following = page.headers["Link"].partition(">")[0].removeprefix("<")
    assert [each["step_index"] for each in ok(api.get(following))] == [4]
    spec = ok(api.get(f"/protocols/{protocol}/spec"))["spec"]
    assert [step["id"] for step in spec["steps"]] == ["01-part", "02-part", "04-part"]


def test_nothing_is_added_to_a_protocol_that_has_ended(api: TestClient, protocol: int) -> None:
    ok(api.post(f"/protocols/{protocol}/actions/cancel"))
    body = {"step_index": 0, "step_name": "00-a", "step_type": "work"}
    assert api.post(f"/protocols/{protocol}/steps", json=body).status_code == 409


def test_of_twenty_who_run_a_step_at_once_one_succeeds(api: TestClient, protocol: int) -> None:
    step = new_step(api, protocol)

    def run(_: int) -> int:
        return api.post(f"/steps/{step}/actions/run").status_code

    with ThreadPoolExecutor(20) as pool:
        answers = sorted(pool.map(run, range(20)))
    assert answers == [200] + [409] * 19
    events = [event["type"] for event in ok(api.get(f"/protocols/{protocol}/events"))]
    assert (events.count("step_enqueued"), events.count("step.running")) == (1, 1)
    jobs = ok(api.get("/queues/jobs", params={"run_id": protocol}))
    assert [job["job_type"] for job in jobs] == ["protocol"]


def test_a_running_step_can_neither_be_run_reviewed_nor_approved(api: TestClient, protocol: int) -> None:
    step = new_step(api, protocol)
    ok(api.post(f"/steps/{step}/actions/run"))
    for action in ("run", "run_qa", "approve"):
        assert api.post(f"/steps/{step}/actions/{action}").status_code == 409, action


def test_a_step_that_failed_is_retried_and_its_retries_are_counted(
    api: TestClient, protocol: int, ledger: Ledger
) -> None:
    step = new_step(api, protocol)
    ok(api.post(f"/steps/{step}/actions/run"))
    with ledger.write() as tx:
        change_step(tx, step, StepStatus.FAILED, reason="it broke")
    assert ok(api.post(f"/protocols/{protocol}/actions/retry_latest"))["message"] == "00-part is queued again"
    [shown] = ok(api.get(f"/protocols/{protocol}/steps"))
    assert (shown["status"], shown["retries"]) == ("running", 1)


def test_a_person_may_approve_and_is_named(api: TestClient, protocol: int) -> None:
    step = new_step(api, protocol)
    done = ok(api.post(f"/steps/{step}/actions/approve"))
    assert (done["status"], done["summary"]) == ("completed", "approved by api")
    assert api.post(f"/steps/{step}/actions/approve").status_code == 409
    events = [event["type"] for event in ok(api.get(f"/protocols/{protocol}/events"))]
    assert "manual_approval" in events


@on_sqlite
def test_an_unknown_step_is_404_and_so_is_one_of_another_run(api: TestClient, ledger: Ledger) -> None:
    with ledger.write() as tx:
        [other] = create_steps(tx, create_run(tx, "research", "x"), [("trial", {})])
    for action in ("run", "run_qa", "approve"):
        for number in (other, 77):
            assert api.post(f"/steps/{number}/actions/{action}").status_code == 404, action
    assert "step_index" not in ok(api.get(f"/steps/{other}"))
    assert api.get("/steps/77").status_code == 404


def test_one_step_is_shown_with_its_own_fields_and_its_attempts(
    api: TestClient, protocol: int, ledger: Ledger
) -> None:
    step = new_step(api, protocol)
    with ledger.write() as tx:
        attempt = open_attempt(tx, get_step(tx, step))
        spender = Spender(attempt, protocol)
        charge(tx, spender, Usage(input_tokens=7), Budgets(), engine="author")
        for name in ("prompt.md", "change.diff", "gate.json", "author-transcript.jsonl"):
            kept = ledger.artifacts.put(tx, name.encode(), name=name, run_id=protocol, attempt_id=attempt)
        add_session(
            tx,
            role="author",
            engine="author",
            usage=Usage(input_tokens=7),
            attempt_id=attempt,
            transcript=kept.sha256,
        )
        close_attempt(tx, attempt, Outcome.FAILED, "the tests failed")
    shown = ok(api.get(f"/steps/{step}"))
    assert (shown["name"], shown["step_name"], shown["step_index"]) == ("00-part", "00-part", 0)
    assert (shown["run_id"], shown["protocol_run_id"]) == (protocol, protocol)
    [tried] = shown["attempts"]["items"]
    assert (tried["outcome"], tried["reason"], tried["usage"]["input_tokens"]) == (
        "failed",
        "the tests failed",
        7,
    )
    assert tried["sessions"][0]["transcript"] == tried["links"]["transcripts"]["author"]
    assert list(tried["links"]["reports"]) == ["gate.json"]
    assert api.get(tried["links"]["prompt"]).text == "prompt.md"
    assert api.get(tried["links"]["diff"]).text == "change.diff"
    assert api.get(tried["links"]["reports"]["gate.json"]).text == "gate.json"
    assert ok(api.get(tried["links"]["self"])) == tried
    assert len(ok(api.get(tried["links"]["artifacts"]))["items"]) == 4
