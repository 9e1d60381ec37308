"""Webhooks over HTTP: who is let in, which project is meant, and what the forge is answered."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from ratchet import projects
from ratchet.config import Loaded
from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger import Ledger
from ratchet.ledger.projects import add_project
from ratchet.observe import metrics
from ratchet.projects.secrets import put_secrets
from ratchet.runtime import Runtime
from tests.forges.github_stand_in import GitHubStandIn
from tests.forges.gitlab_stand_in import GitLabStandIn
from tests.protocols.ci.stream import FIRST, NAME, REMOTE, Waiting, make_waiting
from tests.server.conftest import client_of

REPORT = Path(projects.__file__).parent / "templates" / "report.sh"
SECRET = "the secret of the project"
# For what does not depend on the kind of database.


@pytest.fixture
def client(runtime: Runtime, loaded: Loaded) -> TestClient:
    """A forge: it holds no token of the server."""
    return client_of(runtime, loaded, token=None)


@pytest.fixture(scope="module")
def github() -> Iterator[GitHubStandIn]:
    with GitHubStandIn() as started:
        yield started


@pytest.fixture(scope="module")
def gitlab() -> Iterator[GitLabStandIn]:
    with GitLabStandIn() as started:
        yield started


@pytest.fixture
def waiting(runtime: Runtime) -> Waiting:
    made = make_waiting(runtime, FIRST)
    keep_secret(runtime, made.project_id, SECRET)
    return made


def keep_secret(runtime: Runtime, project_id: int, secret: str) -> None:
    with runtime.ledger.write(actor="test") as tx:
        put_secrets(tx, runtime, project_id, {"webhook_secret": secret})


def share_secret(runtime: Runtime, secret: str) -> None:
    protocols = runtime.settings.protocols.model_copy(update={"webhook_secret": SecretStr(secret)})
    runtime.settings = runtime.settings.replace(protocols=protocols)


def signed(
    client: TestClient, event: str, body: bytes, secret: str = SECRET, query: str = ""
) -> httpx.Response:
    headers = GitHubStandIn.headers(event, body, secret)
    return client.post(f"/webhooks/github{query}", content=body, headers=headers)


def test_a_failed_workflow_fails_the_step_and_blocks_the_protocol(
    client: TestClient, github: GitHubStandIn, waiting: Waiting
) -> None:
    answer = github.post_webhook(client, "workflow_run", github.workflow_run(NAME, FIRST, "failure"), SECRET)
    assert (answer.status_code, answer.json()) == (200, {"message": "Webhook recorded", "job": None})
    assert waiting.statuses[0] is StepStatus.FAILED
    assert waiting.protocol.status is RunStatus.BLOCKED
    assert "workflow_run" in waiting.events


def test_a_merged_pull_request_completes_the_protocol(
    client: TestClient, github: GitHubStandIn, waiting: Waiting
) -> None:
    number = github.add_pull(NAME, draft=True)["number"]
    opened = github.post_webhook(client, "pull_request", github.pull_request(number, "opened"), SECRET)
    assert opened.status_code == 200
    assert waiting.protocol.pull_request["number"] == number
    github.post_webhook(client, "pull_request", github.merge(number), SECRET)
    assert waiting.protocol.status is RunStatus.COMPLETED
    assert "pr_merged" in waiting.events


def test_pipelines_and_merge_requests_of_gitlab_are_taken(
    client: TestClient, gitlab: GitLabStandIn, waiting: Waiting
) -> None:
    def post(hook: str, payload: dict[str, Any]) -> None:
        at = f"/webhooks/gitlab?project_id={waiting.project_id}"
        answer = gitlab.post_webhook(client, hook, payload, SECRET, url=at)
        assert answer.status_code == 200, answer.text

    post("Pipeline Hook", {"object_attributes": {"status": "failed"}, "ref": NAME})
    assert waiting.statuses[0] is StepStatus.FAILED
    assert waiting.protocol.status is RunStatus.BLOCKED
    post("Pipeline Hook", {"object_attributes": {"status": "success"}, "ref": NAME})
    assert waiting.statuses[0] is StepStatus.COMPLETED
    merged = {"state": "merged", "source_branch": NAME, "iid": 1}
    post("Merge Request Hook", {"object_kind": "merge_request", "object_attributes": merged})
    assert waiting.protocol.status is RunStatus.COMPLETED
    assert "mr_merged" in waiting.events


def test_a_delivery_that_comes_again_is_not_taken_again(
    client: TestClient, github: GitHubStandIn, waiting: Waiting
) -> None:
    payload = github.check_run(NAME, FIRST, "success", name="test")
    first = github.post_webhook(client, "check_run", payload, SECRET, delivery="d-1")
    assert first.json()["job"] is not None
    before = waiting.events
    again = github.post_webhook(client, "check_run", payload, SECRET, delivery="d-1")
    assert (again.status_code, again.json()["message"]) == (200, "already recorded")
    assert waiting.events == before


def test_deliveries_that_come_at_once_settle_a_step_once(
    client: TestClient, github: GitHubStandIn, runtime: Runtime
) -> None:
    names = ["a", "b", "c"]
    waiting = make_waiting(runtime, FIRST, required=names)
    keep_secret(runtime, waiting.project_id, SECRET)
    payloads = [github.check_run(NAME, FIRST, "success", name=name) for name in names]
    with ThreadPoolExecutor(3) as pool:
        answers = list(
            pool.map(lambda each: github.post_webhook(client, "check_run", each, SECRET), payloads)
        )
    assert [each.status_code for each in answers] == [200, 200, 200]
    assert waiting.events.count("step.completed") == 1


@pytest.mark.parametrize("secret", ["wrong", "", "the secret of another project"])
def test_a_wrong_signature_is_refused(
    client: TestClient, github: GitHubStandIn, runtime: Runtime, waiting: Waiting, secret: str
) -> None:
    with runtime.ledger.write(actor="test") as tx:
        other = add_project(tx, "other", remote="github.com/acme/other")
    keep_secret(runtime, other, "the secret of another project")
    payload = github.workflow_run(NAME, FIRST, "failure")
    for query in ("", f"?project_id={waiting.project_id}", f"?protocol_run_id={waiting.run_id}"):
        answer = signed(client, "workflow_run", json.dumps(payload).encode(), secret, query)
        assert answer.status_code == 401
        assert "webhook_secret" in answer.json()["hint"]
        assert SECRET not in answer.text
    assert waiting.statuses[0] is StepStatus.NEEDS_QA


@pytest.mark.parametrize("provider", ["github", "gitlab"])
def test_a_delivery_that_is_not_signed_is_refused(
    client: TestClient, runtime: Runtime, provider: str
) -> None:
    make_waiting(runtime, FIRST)
    # Not even read.
    answer = client.post(f"/webhooks/{provider}", content=b"{")
    assert answer.status_code == 401
    assert "not signed" in answer.json()["detail"]


def test_without_any_secret_everything_is_refused_with_what_to_configure(
    client: TestClient, github: GitHubStandIn, runtime: Runtime
) -> None:
    waiting = make_waiting(runtime, FIRST)
    payload = github.workflow_run(NAME, FIRST, "success")
    answer = github.post_webhook(client, "workflow_run", payload, "anything")
    assert answer.status_code == 401
    assert "protocols.webhook_secret" in answer.json()["hint"]
    assert waiting.statuses[0] is StepStatus.NEEDS_QA


def test_the_secret_of_all_projects_serves_those_without_one(
    client: TestClient, github: GitHubStandIn, runtime: Runtime
) -> None:
    share_secret(runtime, "shared")
    waiting = make_waiting(runtime, FIRST)
    payload = github.workflow_run(NAME, FIRST, "success")
    assert github.post_webhook(client, "workflow_run", payload, "shared").status_code == 200
    assert waiting.statuses[0] is StepStatus.COMPLETED
    # A project with a secret of its own takes no other.
    keep_secret(runtime, waiting.project_id, SECRET)
    assert github.post_webhook(client, "workflow_run", payload, "shared").status_code == 401


def test_of_several_projects_on_one_repository_the_one_is_meant_whose_secret_fits(
    client: TestClient, github: GitHubStandIn, runtime: Runtime, waiting: Waiting
) -> None:
    with runtime.ledger.write(actor="test") as tx:
        twin = add_project(tx, "twin", remote=REMOTE)
    keep_secret(runtime, twin, "the twin's")
    second = make_waiting(runtime, FIRST, project_id=twin)
    payload = github.workflow_run(NAME, FIRST, "success")
    github.post_webhook(client, "workflow_run", payload, "the twin's")
    assert (waiting.statuses[0], second.statuses[0]) == (StepStatus.NEEDS_QA, StepStatus.COMPLETED)


def test_of_several_projects_with_one_secret_the_one_is_meant_that_has_the_branch(
    client: TestClient, github: GitHubStandIn, runtime: Runtime
) -> None:
    share_secret(runtime, "shared")
    with runtime.ledger.write(actor="test") as tx:
        add_project(tx, "first", remote=REMOTE)
    waiting = make_waiting(runtime, FIRST)
    payload = github.workflow_run(NAME, FIRST, "success")
    assert github.post_webhook(client, "workflow_run", payload, "shared").status_code == 200
    assert waiting.statuses[0] is StepStatus.COMPLETED


def test_a_report_that_names_no_repository_says_whom_it_means(
    client: TestClient, runtime: Runtime, waiting: Waiting
) -> None:
    body = json.dumps({"state": "pending", "branches": [{"name": NAME}]}).encode()
    assert signed(client, "status", body).status_code == 401
    assert signed(client, "status", body, query=f"?project_id={waiting.project_id}").status_code == 200
    nameless = json.dumps({"state": "success"}).encode()
    found = signed(client, "status", nameless, query=f"?protocol_run_id={waiting.run_id}")
    assert found.status_code == 200
    assert waiting.statuses[0] is StepStatus.COMPLETED


def test_what_is_not_there_is_not_found(client: TestClient, runtime: Runtime, waiting: Waiting) -> None:
    def status(body: dict[str, Any], query: str, secret: str = SECRET) -> int:
        return signed(client, "status", json.dumps(body).encode(), secret, query).status_code

    report = {"state": "success", "branches": [{"name": "unknown"}]}
    assert status(report, "?protocol_run_id=999") == 404
    assert status(report, "?project_id=999") == 404
    assert status(report, f"?project_id={waiting.project_id}") == 404
    assert status(report, f"?project_id={waiting.project_id}&protocol_run_id=999") == 404
    foreign = {**report, "repository": {"clone_url": "https://github.com/stranger/demo.git"}}
    assert status(foreign, f"?protocol_run_id={waiting.run_id}") == 404
    share_secret(runtime, "shared")
    assert status(foreign, "", "shared") == 404
    assert status(report, "", "shared") == 404


def test_a_protocol_of_another_project_cannot_be_named(
    client: TestClient, runtime: Runtime, waiting: Waiting
) -> None:
    with runtime.ledger.write(actor="test") as tx:
        other = add_project(tx, "other", remote="github.com/acme/other")
    keep_secret(runtime, other, "the other's")
    body = json.dumps({"state": "failure"}).encode()
    query = f"?project_id={other}&protocol_run_id={waiting.run_id}"
    assert signed(client, "status", body, "the other's", query).status_code == 404
    assert (
        signed(client, "status", body, "the other's", f"?protocol_run_id={waiting.run_id}").status_code == 401
    )
    assert waiting.statuses[0] is StepStatus.NEEDS_QA


def test_another_branch_of_the_repository_is_no_error(
    client: TestClient, github: GitHubStandIn, waiting: Waiting
) -> None:
    answer = github.post_webhook(client, "workflow_run", github.workflow_run("main", None, "failure"), SECRET)
    assert answer.status_code == 200
    assert "no protocol" in answer.json()["message"]


def test_a_ping_is_answered(
    client: TestClient, github: GitHubStandIn, runtime: Runtime, waiting: Waiting
) -> None:
    assert github.post_webhook(client, "ping", github.about(zen="z"), SECRET).json()["message"] == "pong"
    assert github.post_webhook(client, "ping", {"zen": "z"}, "unknown").status_code == 401
    share_secret(runtime, "shared")
    assert github.post_webhook(client, "ping", {"zen": "z"}, "shared").status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b"\xff", b'{"repository":'])
def test_malformed_json_is_a_bad_request(client: TestClient, waiting: Waiting, body: bytes) -> None:
    for query in ("", f"?project_id={waiting.project_id}"):
        assert signed(client, "status", body, query=query).status_code == 400


def test_what_is_too_large_is_refused(client: TestClient, waiting: Waiting) -> None:
    body = b'{"a": "' + b"x" * (10 * 1024 * 1024) + b'"}'
    assert signed(client, "status", body).status_code == 413


@pytest.mark.parametrize(
    "query", ["?project_id=0", "?project_id=x", "?protocol_run_id=-1", f"?project_id={2**63}"]
)
def test_a_query_that_cannot_be_meant_is_invalid(client: TestClient, query: str) -> None:
    assert signed(client, "status", b"{}", query=query).status_code == 422


@pytest.mark.parametrize(
    "branch", ["0007-login'; DROP TABLE runs; --", "../../etc", "\u0000", "\ud800", "x" * 10_000]
)
def test_a_hostile_branch_finds_nothing(
    client: TestClient, github: GitHubStandIn, waiting: Waiting, branch: str
) -> None:
    payload = github.workflow_run(branch, None, "failure")
    answer = github.post_webhook(client, "workflow_run", payload, SECRET)
    assert answer.status_code == 200
    assert waiting.statuses[0] is StepStatus.NEEDS_QA


def test_deliveries_are_counted_by_what_became_of_them(
    client: TestClient, github: GitHubStandIn, ledger: Ledger, waiting: Waiting
) -> None:
    def counted() -> dict[str, float]:
        found = metrics.snapshot()
        names = ("recorded", "repeated", "unsigned", "malformed", "ignored", "ping", "unknown")
        return {
            name: found.get(
                json.dumps(
                    ["ratchet_webhooks_total", {"provider": "github", "status": name}], separators=(",", ":")
                ),
                0.0,
            )
            for name in names
        }

    before = counted()
    payload = github.workflow_run(NAME, FIRST, None)
    for secret in (SECRET, SECRET, "wrong"):
        github.post_webhook(client, "workflow_run", payload, secret, delivery="d-1")
    signed(client, "status", b"{")
    after = counted()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "recorded": 1,
        "repeated": 1,
        "unsigned": 1,
        "malformed": 1,
    }


# Instead of sending, it writes down what would be sent: the headers, the body and the address.
CURL = """\
#!/usr/bin/env python3
import json, sys
from pathlib import Path

words = sys.argv[1:]
headers = Path(words[words.index("--header") + 1][1:]).read_text().splitlines()
sent = {"headers": dict(line.split(": ", 1) for line in headers), "body": sys.stdin.read(), "url": words[-1]}
Path(__file__).with_name("sent").write_text(json.dumps(sent))
"""


@pytest.mark.parametrize("provider", ["github", "gitlab"])
def test_what_the_ci_script_of_a_project_reports_is_understood(
    client: TestClient, runtime: Runtime, waiting: Waiting, tmp_path: Path, provider: str
) -> None:
    curl, script = tmp_path / "bin" / "curl", tmp_path / "repo" / "scripts" / "ci" / "report.sh"
    for file, text in ((curl, CURL), (script, REPORT.read_text())):
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o755)
    (tmp_path / "log").write_text("assert 1 == 2\n")
    environment = {
        "PATH": f"{curl.parent}:{os.environ['PATH']}",
        "RATCHET_URL": "http://ratchet.example.org",
        "RATCHET_WEBHOOK_SECRET": SECRET,
        "RATCHET_CI_PROVIDER": provider,
        "RATCHET_CI_BRANCH": NAME,
        "RATCHET_CI_COMMIT": FIRST,
        "RATCHET_CI_REPOSITORY": f"https://{REMOTE}.git",
        "RATCHET_CI_LOG": str(tmp_path / "log"),
    }
    subprocess.run([script, "failure", "test"], env=environment, check=True, capture_output=True, timeout=60)
    sent = json.loads((curl.parent / "sent").read_text())
    path = sent["url"].removeprefix("http://ratchet.example.org")
    answer = client.post(path, content=sent["body"].encode(), headers=sent["headers"])
    assert answer.json()["message"] == "Webhook recorded"
    step = waiting.steps[0]
    assert step.status is StepStatus.FAILED
    [told] = step.runtime_state["ci"]["failed"]
    assert (told["check"], told["job"], told["log_tail"]) == ("test", "test", "assert 1 == 2")
