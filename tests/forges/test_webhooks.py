"""Deliveries of webhooks: whether they are genuine, and what they say."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.forges import (
    CheckState,
    Delivery,
    ForgeEvent,
    ForgeEventKind,
    ForgeJob,
    MalformedDelivery,
    Provider,
    Trouble,
)

SECRET = "a long random text"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NOON = 1_740_830_400_000  # 2025-03-01T12:00:00Z
REPOSITORY = {"full_name": "acme/demo", "clone_url": "https://github.com/acme/demo.git"}


def signature(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def github(event: str, **payload: Any) -> ForgeEvent:
    return Delivery.of("github", {"X-GitHub-Event": event}, json.dumps(payload).encode()).read()


def gitlab(hook: str = "", **payload: Any) -> ForgeEvent:
    return Delivery.of("gitlab", {"X-Gitlab-Event": hook}, json.dumps(payload).encode()).read()


@pytest.mark.parametrize("prefix", ["sha256=", ""])
def test_a_signature_over_the_raw_body_proves_a_delivery_of_github(prefix: str) -> None:
    body = b'{"a":  1}'
    delivery = Delivery.of("github", {"x-hub-signature-256": prefix + signature(body)}, body)
    assert delivery.proof
    assert delivery.is_signed_with(SECRET)
    assert not delivery.is_signed_with(SECRET + "x")
    assert not delivery.is_signed_with("")


@pytest.mark.parametrize(
    "header", [None, "", "sha256=", "sha256=" + "0" * 64, "sha1=" + "0" * 40, "\u00fc" * 64, "x" * 100_000]
)
def test_a_wrong_signature_proves_nothing(header: str | None) -> None:
    headers = {} if header is None else {"X-Hub-Signature-256": header}
    assert not Delivery.of("github", headers, b"{}").is_signed_with(SECRET)


def test_a_body_that_was_changed_does_not_fit_its_signature() -> None:
    headers = {"X-Hub-Signature-256": f"sha256={signature(b'{}')}"}
    assert not Delivery.of("github", headers, b"{} ").is_signed_with(SECRET)


@pytest.mark.parametrize(
    "name", ["X-Gitlab-Token", "X-Ratchet-Webhook-Token", "X-TasksGodzilla-Webhook-Token"]
)
def test_a_token_proves_a_delivery_of_gitlab(name: str) -> None:
    delivery = Delivery.of("gitlab", {name: SECRET}, b"{}")
    assert delivery.is_signed_with(SECRET)
    assert not delivery.is_signed_with("another")
    assert not Delivery.of("gitlab", {}, b"{}").is_signed_with(SECRET)


def test_a_signature_that_gitlab_sends_besides_must_be_right_too() -> None:
    headers = {"X-Gitlab-Token": SECRET, "X-Gitlab-Signature-256": signature(b"{}")}
    assert Delivery.of("gitlab", headers, b"{}").is_signed_with(SECRET)
    assert not Delivery.of("gitlab", headers, b"{ }").is_signed_with(SECRET)
    # Alone it is not what GitLab sends.
    del headers["X-Gitlab-Token"]
    assert not Delivery.of("gitlab", headers, b"{}").is_signed_with(SECRET)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 200_000, b'{"a":' + b"9" * 5000 + b"}"])
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedDelivery):
        Delivery.of("github", {}, body).read()


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"text"'])
def test_what_is_no_object_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedDelivery, match="not an object"):
        Delivery.of("gitlab", {}, body).read()


def test_a_form_as_github_sends_it_by_default_is_read() -> None:
    body = urlencode({"payload": json.dumps({"zen": "z"})}).encode()
    headers = {"X-GitHub-Event": "ping", "Content-Type": "application/x-www-form-urlencoded"}
    assert Delivery.of("github", headers, body).read().kind is ForgeEventKind.PING
    with pytest.raises(MalformedDelivery):
        Delivery.of("github", headers, b"other=1").read()


def test_a_delivery_is_known_by_the_id_of_its_forge_else_by_its_content() -> None:
    def named(provider: Provider, body: bytes = b"{}", **headers: str) -> str:
        return (
            Delivery.of(provider, {name.replace("_", "-"): text for name, text in headers.items()}, body)
            .read()
            .delivery
        )

    assert named("github", X_GitHub_Delivery="d-1") == "d-1"
    assert named("github") == named("github") != named("github", b"{ }")
    assert named("gitlab", Idempotency_Key="k", X_Gitlab_Event_UUID="e") == "k"
    # Events that one event causes share its id.
    assert named("gitlab", X_Gitlab_Event_UUID="e") != named("gitlab", b"{ }", X_Gitlab_Event_UUID="e")


@pytest.mark.parametrize(
    ("conclusion", "state"),
    [
        ("success", CheckState.PASSED),
        ("neutral", CheckState.PASSED),
        ("skipped", CheckState.NEUTRAL),
        ("failure", CheckState.FAILED),
        ("timed_out", CheckState.FAILED),
        ("cancelled", CheckState.FAILED),
        ("action_required", CheckState.FAILED),
        ("startup_failure", CheckState.FAILED),
        ("stale", CheckState.FAILED),
        (None, CheckState.PENDING),
        ("something new", None),
    ],
)
def test_a_workflow_run_is_read(conclusion: str | None, state: CheckState | None) -> None:
    found = {
        "name": "CI",
        "event": "push",
        "status": "completed" if conclusion else "in_progress",
        "conclusion": conclusion,
        "head_branch": "0007-login",
        "head_sha": COMMIT,
        "html_url": "https://github.com/acme/demo/actions/runs/1",
        "updated_at": "2025-03-01T12:00:00Z",
        "pull_requests": [{"number": 4}],
        "head_repository": {"full_name": "Acme/Demo"},
    }
    event = github("workflow_run", workflow_run=found, repository=REPOSITORY)
    assert event.kind is ForgeEventKind.CHECK
    assert (event.check, event.state, event.branch, event.commit) == ("CI", state, "0007-login", COMMIT)
    assert (event.at, event.pull_request, event.repository) == (NOON, 4, REPOSITORY["clone_url"])


def test_a_run_for_the_pull_request_does_not_speak_for_that_of_the_push() -> None:
    run = {"name": "CI", "event": "pull_request", "conclusion": "success", "head_branch": "b"}
    assert github("workflow_run", workflow_run=run).check == "CI (pull_request)"


def test_a_run_of_a_fork_is_about_no_branch_here() -> None:
    run = {"name": "CI", "head_branch": "0007-login", "head_repository": {"full_name": "stranger/demo"}}
    assert github("workflow_run", workflow_run=run, repository=REPOSITORY).branches == ()


def test_a_job_tells_which_of_its_steps_failed() -> None:
    job = {
        "name": "test",
        "conclusion": "failure",
        "head_branch": "b",
        "head_sha": COMMIT,
        "completed_at": "2025-03-01T12:00:00Z",
        "steps": [
            {"name": "Set up", "conclusion": "success"},
            {"name": "Run tests", "conclusion": "failure"},
        ],
    }
    event = github("workflow_job", workflow_job=job)
    assert (event.check, event.state, event.trouble) == (
        "test",
        CheckState.FAILED,
        Trouble("test", "Run tests"),
    )


def test_suites_of_one_app_are_told_apart() -> None:
    names = {
        github("check_suite", check_suite={"id": number, "app": {"name": "GitHub Actions"}}).check
        for number in (1, 2)
    }
    assert len(names) == 2


def test_a_check_run_brings_the_end_of_what_it_said() -> None:
    run = {
        "name": "lint",
        "conclusion": "failure",
        "head_sha": COMMIT,
        "check_suite": {"head_branch": "b"},
        "output": {"title": "2 problems", "text": "x" * 20_000 + "the last line\n"},
        "html_url": "javascript:alert(1)",
    }
    event = github("check_run", check_run=run)
    assert (event.branch, event.trouble.step) == ("b", "2 problems")
    assert event.trouble.log_tail is not None
    assert event.trouble.log_tail.endswith("the last line")
    assert len(event.trouble.log_tail) <= 8000
    assert event.url is None


def test_a_status_may_be_about_several_branches() -> None:
    event = github(
        "status",
        state="failure",
        context="test",
        sha=COMMIT.upper(),
        branches=[{"name": "main"}, {"name": "0007-login"}],
        target_url="https://ci.example.org/1",
        detail={"job": "test", "log_tail": "assert 1 == 2"},
        repository=REPOSITORY,
    )
    assert event.branches == ("main", "0007-login")
    assert (event.commit, event.state) == (COMMIT, CheckState.FAILED)
    assert event.trouble == Trouble("test", None, "assert 1 == 2")


def test_a_report_without_a_commit_is_read_by_its_ref() -> None:
    event = github("status", state="success", ref="refs/heads/0007-login")
    assert (event.branch, event.commit, event.check) == ("refs/heads/0007-login", None, "status")


@pytest.mark.parametrize(
    ("action", "merged", "state", "closed"),
    [("opened", False, "open", False), ("closed", True, "closed", True), ("closed", False, "closed", True)],
)
def test_a_pull_request_is_read(action: str, merged: bool, state: str, closed: bool) -> None:
    found = {
        "number": 4,
        "state": state,
        "merged": merged,
        "draft": True,
        "head": {"ref": "b", "sha": COMMIT},
    }
    event = github("pull_request", action=action, pull_request=found)
    assert event.kind is ForgeEventKind.PULL_REQUEST
    assert (event.pull_request, event.merged, event.closed, event.draft) == (4, merged, closed, True)
    assert (event.branch, event.outcome) == ("b", action)


@pytest.mark.parametrize("fork", [{"clone_url": "https://github.com/stranger/demo.git"}, None])
def test_the_pull_request_of_a_fork_is_about_no_branch_here(fork: object) -> None:
    ends = {
        "head": {"ref": "b", "repo": fork},
        "base": {"ref": "main", "repo": REPOSITORY},
    }
    assert github("pull_request", action="closed", pull_request=ends).branches == ()


def test_a_push_and_the_end_of_a_branch_are_told_apart() -> None:
    assert github("push", ref="refs/heads/b", after=COMMIT).commit == COMMIT
    assert github("push", ref="refs/heads/b", after="0" * 40).commit is None


@pytest.mark.parametrize("name", ["issues", "", "Push; DROP TABLE", "x" * 500])
def test_what_nobody_needs_is_something_else(name: str) -> None:
    event = github(name)
    assert event.kind is ForgeEventKind.OTHER
    assert event.name in ("issues", "webhook")


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("success", CheckState.PASSED),
        ("failed", CheckState.FAILED),
        ("failure", CheckState.FAILED),
        ("canceled", CheckState.FAILED),
        ("running", CheckState.PENDING),
        ("manual", CheckState.PENDING),
        ("skipped", CheckState.NEUTRAL),
    ],
)
def test_a_pipeline_is_read(word: str, state: CheckState) -> None:
    event = gitlab("Pipeline Hook", object_attributes={"status": word}, ref="0007-login")
    assert (event.name, event.kind, event.check) == ("pipeline", ForgeEventKind.CHECK, "pipeline")
    assert (event.state, event.branch) == (state, "0007-login")


def test_a_pipeline_speaks_for_its_jobs_and_says_which_failed() -> None:
    event = gitlab(
        object_kind="pipeline",
        object_attributes={
            "status": "failed",
            "sha": COMMIT,
            "ref": "b",
            "finished_at": "2025-03-01 12:00:00 UTC",
        },
        builds=[
            {"name": "lint", "status": "success", "finished_at": "2025-03-01T12:00:00Z"},
            {"name": "flaky", "status": "failed", "allow_failure": True},
            {"name": "test", "stage": "check", "status": "failed", "failure_reason": "script_failure"},
            {"name": 7, "status": "failed"},
        ],
        project={"git_http_url": "https://gitlab.com/acme/demo.git"},
    )
    trouble = Trouble("test", "script_failure")
    assert event.jobs == (
        ForgeJob("lint", CheckState.PASSED, "success", NOON),
        ForgeJob("flaky", CheckState.NEUTRAL, "failed", None),
        ForgeJob("test", CheckState.FAILED, "failed", None, trouble),
    )
    assert (event.trouble, event.at, event.commit) == (trouble, NOON, COMMIT)
    assert event.repository == "https://gitlab.com/acme/demo.git"


def test_a_pipeline_of_a_merge_request_is_about_its_branch() -> None:
    attributes = {"status": "success", "source": "merge_request_event", "ref": "refs/merge-requests/1/merge"}
    ends = {"iid": 3, "source_branch": "b", "source_project_id": 1, "target_project_id": 1}
    event = gitlab(object_kind="pipeline", object_attributes=attributes, merge_request=ends)
    assert (event.branch, event.pull_request, event.check) == ("b", 3, "pipeline (merge request)")
    ends["source_project_id"] = 2
    assert gitlab(object_kind="pipeline", object_attributes=attributes, merge_request=ends).branches == ()


def test_a_build_is_read() -> None:
    event = gitlab(
        "Job Hook",
        object_kind="build",
        build_name="test",
        build_status="failed",
        build_stage="check",
        build_finished_at="2025-03-01 13:00:00 +0100",
        ref="b",
        sha=COMMIT,
        detail={"log_tail": "https://me:password@example.org failed"},
        repository={"homepage": "https://gitlab.com/acme/demo"},
    )
    assert (event.check, event.state, event.commit, event.at) == ("test", CheckState.FAILED, COMMIT, NOON)
    assert (event.trouble.job, event.trouble.step) == ("test", "check")
    assert event.trouble.log_tail is not None
    assert "password" not in event.trouble.log_tail
    assert event.repository == "https://gitlab.com/acme/demo"


@pytest.mark.parametrize(
    ("state", "merged", "closed"), [("merged", True, True), ("closed", False, True), ("opened", False, False)]
)
def test_a_merge_request_is_read(state: str, merged: bool, closed: bool) -> None:
    attributes = {"state": state, "source_branch": "b", "iid": 4, "last_commit": {"id": COMMIT}}
    event = gitlab(object_kind="merge_request", object_attributes=attributes)
    assert event.kind is ForgeEventKind.PULL_REQUEST
    assert (event.merged, event.closed, event.pull_request, event.commit) == (merged, closed, 4, COMMIT)
    foreign = {**attributes, "source_project_id": 1, "target_project_id": 2}
    assert gitlab(object_kind="merge_request", object_attributes=foreign).branches == ()


def test_pushes_and_notes_of_gitlab_are_read() -> None:
    assert gitlab(object_kind="push", ref="refs/heads/b", checkout_sha=COMMIT).commit == COMMIT
    note = gitlab("Note Hook", object_kind="note", merge_request={"source_branch": "b", "iid": 2})
    assert (note.kind, note.branch, note.pull_request) == (ForgeEventKind.OTHER, "b", 2)


EVENTS_OF_GITHUB = "workflow_run workflow_job check_suite check_run status pull_request push ping issues"
EVENTS_OF_GITLAB = "pipeline build job merge_request push note tag_push"
NAMES = {"github": EVENTS_OF_GITHUB.split(), "gitlab": EVENTS_OF_GITLAB.split()}
FIELDS = (
    "workflow_run workflow_job check_suite check_run pull_request repository project object_attributes object_kind"
    " head base repo ref sha name status state conclusion steps builds output text branches merged number iid app id"
    " head_sha head_branch updated_at finished_at html_url clone_url pull_requests merge_request detail log_tail"
)
KEYS = st.sampled_from(FIELDS.split())
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(
        ["failure", "success", "failed", COMMIT, "2025-03-01T12:00:00Z", "99999-01-01", "\ud800\x00"]
    )
)
ANYTHING = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=30
)


@pytest.mark.soak
@settings(max_examples=60)
@given(
    provider=st.sampled_from(["github", "gitlab"]),
    payload=st.dictionaries(KEYS, ANYTHING, max_size=8),
    data=st.data(),
)
def test_whatever_json_comes_is_read_into_values_of_the_right_type(
    provider: Provider, payload: dict[str, Any], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(NAMES[provider]))
    if provider == "gitlab":
        payload = {"object_kind": name, **payload}
    headers = {"X-GitHub-Event": name, "X-GitHub-Delivery": data.draw(st.text(max_size=300))}
    event = Delivery.of(provider, headers, json.dumps(payload).encode()).read()
    words = (event.repository, *event.branches, event.commit, event.check, event.outcome, event.url)
    assert all(word is None or (isinstance(word, str) and 0 < len(word) <= 2000) for word in words)
    assert event.commit is None or len(event.commit) in (40, 64)
    assert event.at is None or 0 < event.at < 2**63
    assert event.pull_request is None or 0 < event.pull_request < 2**63
    assert event.state is None or event.state in CheckState
    assert event.url is None or event.url.lower().startswith("http")
    assert len(event.trouble.log_tail or "") <= 8000
    assert event.delivery
    json.dumps([event.name, event.delivery, *words])
