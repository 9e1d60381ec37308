"""From a repository to a finished pull request: onboarding, plan, steps, QA, push, draft, CI, done.

Real are git, its bare remote, the sandbox, the API and the worker; the forge is a stand-in that speaks HTTP, and the
agents are small programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.kernel import Outcome, RunStatus, StepStatus
from ratchet.ledger.projects import change_project, get_project
from ratchet.ledger.runs import list_attempts
from ratchet.projects.secrets import put_secrets
from ratchet.runtime import Runtime, Worker
from ratchet.server.app import create_app
from tests.forges.github_stand_in import GitHubStandIn
from tests.forges.gitlab_stand_in import GitLabStandIn
from tests.protocols.world import World, encode_plan, make_remote
from tests.waiting import eventually

TOKEN, SECRET = "a-token-for-tests", "the secret of the webhooks"
CHECKS = ["lint", "test"]


@pytest.fixture
def github(runtime: Runtime) -> Iterator[GitHubStandIn]:
    with GitHubStandIn() as started:
        reach(runtime, github_url=started.url)
        yield started


@pytest.fixture
def gitlab(runtime: Runtime) -> Iterator[GitLabStandIn]:
    with GitLabStandIn() as started:
        reach(runtime, gitlab_url=started.api)
        yield started


def reach(runtime: Runtime, **addresses: str) -> None:
    protocols = runtime.settings.protocols.model_copy(update=addresses)
    runtime.settings = runtime.settings.replace(protocols=protocols)


@pytest.fixture
def client(runtime: Runtime, loaded: Loaded, worker: Worker) -> TestClient:
    app = create_app(runtime, loaded, TOKEN, process_id=worker.process_id)
    return TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"})


@pytest.fixture
def world(tmp_path: Path, runtime: Runtime, client: TestClient) -> World:
    return onboard(tmp_path, runtime, client)


def onboard(
    home: Path,
    runtime: Runtime,
    client: TestClient,
    *,
    provider: str = "github",
    on_forge: str = "github.com/acme/demo",
) -> World:
    """A project that was registered and set up through the API."""
    remote = make_remote(home)
    answer = client.post("/projects", json={"name": "demo", "git_url": str(remote), "ci_provider": provider})
    assert answer.status_code == 200, answer.text
    project_id = answer.json()["id"]
    eventually(lambda: onboarded(client, project_id)["status"] == "completed")
    with runtime.ledger.write(actor="test") as tx:
        put_secrets(tx, runtime, project_id, {"webhook_secret": SECRET, "forge_token": GitHubStandIn.token})
        facts = get_project(tx, project_id).facts
        change_project(
            tx,
            project_id,
            remote=on_forge,
            facts={**facts, "checks": [], "required_checks": CHECKS},
        )
    return World(home, remote, runtime, project_id)


def onboarded(client: TestClient, project_id: int) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/projects/{project_id}/onboarding").json()
    return found


def awaited(world: World, run_id: int, step: int) -> str:
    """The commit of a step that waits for CI."""

    def waits() -> bool:
        steps = world.steps(run_id)
        return len(steps) > step and steps[step].awaits_ci

    eventually(lambda: world.stands(run_id) or waits())
    assert not world.stands(run_id), world.protocol(run_id).reason
    commit = world.steps(run_id)[step].commit
    assert commit is not None
    return commit


def report(client: TestClient, github: GitHubStandIn, commit: str, **conclusions: str) -> None:
    for name, conclusion in conclusions.items():
        said = github.check_run(
            "0001-change", commit, conclusion, name=name, said=f"the log of {name}: line 7 is wrong"
        )
        assert github.post_webhook(client, "check_run", said, SECRET).status_code == 200


def test_a_change_goes_all_the_way(github: GitHubStandIn, client: TestClient, world: World) -> None:
    plan = encode_plan(
        [
            {"filename": "00-setup.md", "content": "Get ready.\nwrite setup.txt ready", "qa": "light"},
            {"filename": "01-a.md", "content": "Write a.\nwrite a.txt bad\nfix a.txt good"},
        ]
    )
    made = client.post(
        f"/projects/{world.project_id}/protocols",
        json={"protocol_name": "0001-change", "description": f"A change.\nPLAN={plan}"},
    )
    assert made.status_code == 200, made.text
    run_id = made.json()["id"]
    assert client.post(f"/protocols/{run_id}/actions/start").status_code == 200

    commit = awaited(world, run_id, 0)
    [pull] = github.pulls.values()
    assert (pull["draft"], pull["title"]) == (True, "WIP: 0001 - change")
    report(client, github, commit, lint="success")
    assert world.steps(run_id)[0].status is StepStatus.NEEDS_QA, "one check of two is not enough"
    report(client, github, commit, test="success")

    # QA refuses the first attempt at the second step, and CI refuses the second.
    commit = awaited(world, run_id, 1)
    assert world.git("show", f"{commit}:a.txt") == "good"
    report(client, github, commit, lint="failure", test="success")
    eventually(lambda: world.steps(run_id)[1].commit != commit and world.steps(run_id)[1].awaits_ci)
    fixed = awaited(world, run_id, 1)
    assert fixed != commit
    report(client, github, fixed, lint="success", test="success")

    eventually(lambda: world.stands(run_id))
    assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert pull["draft"] is False, (world.events(run_id), world.protocol(run_id).pull_request)
    assert pull["title"] == "0001 - change"
    assert world.git("rev-parse", "0001-change") == world.protocol(run_id).pushed == fixed
    with world.ledger.read() as tx:
        tries = list_attempts(tx, world.steps(run_id)[1].step_id)
    assert [each.outcome for each in tries] == [Outcome.FAILED, Outcome.PASSED, Outcome.PASSED]
    assert client.get(f"/protocols/{run_id}").json()["status"] == "completed"
    told = world.events(run_id)
    for event in (
        "planned",
        "qa_failed",
        "pushed",
        "open_pr",
        "check_run",
        "ci_failed",
        "protocol_completed",
    ):
        assert event in told
    # What comes late changes nothing.
    report(client, github, fixed, lint="failure")
    assert world.protocol(run_id).status is RunStatus.COMPLETED
    # Whoever asks for the pull request gets it up to date.
    pull["title"], pull["body"], pull["state"] = "Mine", "", "closed"
    assert client.post(f"/protocols/{run_id}/actions/open_pr").status_code == 200
    eventually(lambda: "pull_request_updated" in world.events(run_id))
    assert "1. 00-setup\n2. 01-a\n" in pull["body"]
    assert pull["title"] == "Mine", "people may call it as they like"
    kept = world.protocol(run_id).pull_request
    assert kept is not None
    assert (kept["title"], kept["state"]) == ("Mine", "closed")


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_change_goes_through_gitlab_until_it_is_merged(
    gitlab: GitLabStandIn, client: TestClient, tmp_path: Path, runtime: Runtime
) -> None:
    world = onboard(tmp_path, runtime, client, provider="gitlab", on_forge=f"gitlab.com/{gitlab.repository}")
    plan = encode_plan(
        [
            {"filename": "00-setup.md", "content": "Write s.\nwrite s.txt one\nfix s.txt two", "qa": "skip"},
            {"filename": "01-a.md", "content": "Write a.\nwrite a.txt good"},
        ]
    )
    body = {"protocol_name": "0001-change", "description": f"A change.\nPLAN={plan}"}
    run_id = client.post(f"/projects/{world.project_id}/protocols", json=body).json()["id"]
    assert client.post(f"/protocols/{run_id}/actions/start").status_code == 200

    def pipeline(commit: str, status: str, **jobs: str) -> None:
        said = gitlab.about(
            object_kind="pipeline",
            object_attributes={"id": 1, "status": status, "ref": "0001-change", "sha": commit},
            builds=[{"name": name, "status": each, "stage": "test"} for name, each in jobs.items()],
        )
        assert gitlab.post_webhook(client, "Pipeline Hook", said, SECRET).status_code == 200

    commit = awaited(world, run_id, 0)
    [opened] = gitlab.merge_requests.values()
    assert (opened["source_branch"], opened["title"]) == ("0001-change", "Draft: WIP: 0001 - change")
    pipeline(commit, "failed", lint="failed", test="success")
    eventually(lambda: world.steps(run_id)[0].commit != commit and world.steps(run_id)[0].awaits_ci)
    fixed = awaited(world, run_id, 0)
    pipeline(fixed, "running", lint="success", test="running")
    assert world.steps(run_id)[0].status is StepStatus.NEEDS_QA, "one check of two is not enough"
    merged = {"iid": opened["iid"], "state": "merged", "action": "merge", "source_branch": "0001-change"}
    said = gitlab.about(object_kind="merge_request", object_attributes=merged)
    assert gitlab.post_webhook(client, "Merge Request Hook", said, SECRET).status_code == 200
    assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert {"open_pr", "pipeline", "ci_failed", "step_fix", "mr_merged"} <= set(world.events(run_id))
