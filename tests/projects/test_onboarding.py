import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger import EventFilter
from ratchet.ledger.events import latest
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.runs import get_run
from ratchet.projects.clarifications import Clarification, answer, list_clarifications
from ratchet.projects.onboarding import set_up
from ratchet.projects.registration import set_up_again
from ratchet.projects.stages import OnboardingAnswer, onboarding_view
from ratchet.runtime import Runtime, Worker, cancel_run
from tests.projects.conftest import MakeRuntime
from tests.projects.http_remote import http_remote
from tests.projects.jobs import (
    Died,
    do_all,
    finish,
    onboard,
    project_of,
    register,
    setup_status,
    take,
    told,
    types,
)
from tests.projects.processes import with_word
from tests.projects.repositories import git, head, make_local, make_remote
from tests.waiting import eventually

KEYS = [
    *("ci_provider", "prefer_ssh", "git_identity", "branch_naming", "required_checks"),
    *("pr_policy", "default_models", "secrets", "codex_discovery"),
]
IDENTITY = {"name": "Ada", "email": "ada@example.org"}
ANSWERS = {
    "ci_provider": "gitlab",
    "prefer_ssh": True,
    "git_identity": IDENTITY,
    "branch_naming": "any",
    "required_checks": ["test", "lint"],
    "pr_policy": "ready",
    "default_models": {"exec": "big"},
    "secrets": [],
    "codex_discovery": False,
}


def view(runtime: Runtime, project: Project) -> OnboardingAnswer:
    with runtime.ledger.read() as tx:
        return onboarding_view(tx, get_project(tx, project.id))


def questions(runtime: Runtime, project: Project) -> dict[str, Clarification]:
    with runtime.ledger.read() as tx:
        return {each.key: each for each in list_clarifications(tx, project_id=project.id)}


def say(runtime: Runtime, project: Project, key: str, said: object) -> None:
    with runtime.ledger.write() as tx:
        answer(tx, runtime, questions(runtime, project)[key].id, said, by="ada")


def again(runtime: Runtime, project: Project) -> None:
    with runtime.ledger.write() as tx:
        set_up_again(tx, runtime, project.id)
    do_all(runtime)


def test_a_repository_is_cloned_looked_at_given_its_files_and_asked_about(
    runtime: Runtime, remote: Path, tmp_path: Path
) -> None:
    project = onboard(runtime, git_url=f"file://{remote}", ci_files=True)
    place = tmp_path / "projects" / str(project.id) / "origin"
    assert setup_status(runtime, project) is RunStatus.COMPLETED
    assert (project.local_path, project.remote) == (str(place), str(remote))
    assert head(place) == head(remote)
    seen = view(runtime, project)
    assert [stage.name for stage in seen.stages] == [
        "resolve",
        "discovery",
        "assets",
        "git",
        "clarifications",
    ]
    assert {stage.status for stage in seen.stages} <= {"completed", "warning", "skipped"}
    assert (seen.status, seen.workspace_path) == ("completed", str(place))
    assert seen.last_event is not None
    assert seen.last_event.event_type == "setup_completed"
    happened = [type for type in types(runtime, project.id) if type.startswith("setup_")]
    assert happened[:4] == ["setup_enqueued", "setup_started", "setup_cloned", "setup_local_path_recorded"]
    assert {"setup_discovery_started", "setup_discovery_completed", "setup_assets"} <= set(happened)
    [asked] = [event for event in told(runtime, project.id) if event.type == "setup_clarifications"]
    assert asked.data["blocking"] is False
    assert list(questions(runtime, project)) == KEYS


@pytest.mark.soak
def test_a_worker_does_it_by_itself(runtime: Runtime, worker: Worker, remote: Path) -> None:
    project_id = register(runtime, git_url=str(remote))
    eventually(lambda: setup_status(runtime, project_of(runtime, project_id)) is RunStatus.COMPLETED)


def test_a_local_repository_is_used_where_it_is_and_keeps_the_work_of_people(
    runtime: Runtime, tmp_path: Path, remote: Path
) -> None:
    local = make_local(tmp_path / "mine")
    git(local, "remote", "add", "origin", str(remote))
    (local / "README.md").write_text("half a thought")
    (local / "notes.txt").write_text("mine")
    project = onboard(runtime, local_path=str(local))
    assert setup_status(runtime, project) is RunStatus.COMPLETED
    assert (project.local_path, project.git_url, project.remote) == (str(local), str(remote), str(remote))
    assert (local / "README.md").read_text() == "half a thought"
    assert (local / "notes.txt").read_text() == "mine"
    assert git(local, "log", "--format=%s") == "begin"
    assert git(local, "stash", "list") == ""
    # Nobody asked for CI files.
    assert sorted(each.name for each in local.iterdir()) == [".git", "README.md", "notes.txt"]
    assert not (tmp_path / "projects" / str(project.id) / "mine").exists()


def test_without_cloning_it_waits_for_the_repository_and_then_goes_on(
    make_runtime: MakeRuntime, remote: Path, tmp_path: Path
) -> None:
    runtime = make_runtime(projects__auto_clone=False)
    project = onboard(runtime, git_url=str(remote))
    assert setup_status(runtime, project) is RunStatus.BLOCKED
    seen = view(runtime, project)
    assert seen.last_event is not None
    assert seen.last_event.event_type == "setup_pending_clone"
    place = tmp_path / "projects" / str(project.id) / "origin"
    assert f"git clone {remote} {place}" in (seen.reason or "")
    assert [stage.status for stage in seen.stages] == ["blocked", *["pending"] * 4]
    git(tmp_path, "clone", "--quiet", str(remote), str(place))
    again(runtime, project)
    assert setup_status(runtime, project) is RunStatus.COMPLETED


def test_a_remote_that_is_not_there_blocks_and_a_later_try_goes_on(runtime: Runtime, tmp_path: Path) -> None:
    project = onboard(runtime, git_url=str(tmp_path / "later"))
    assert setup_status(runtime, project) is RunStatus.BLOCKED
    assert types(runtime, project.id)[-1] == "setup_clone_failed"
    make_remote(tmp_path / "later")
    again(runtime, project)
    assert setup_status(runtime, project) is RunStatus.COMPLETED


@pytest.mark.parametrize("place", ["nothing", "no-repository", "bare"])
def test_a_path_that_is_no_usable_repository_blocks_with_a_reason(
    runtime: Runtime, tmp_path: Path, place: str
) -> None:
    (tmp_path / "no-repository").mkdir()
    make_remote(tmp_path / "bare")
    project = onboard(runtime, local_path=str(tmp_path / place))
    seen = view(runtime, project)
    assert seen.status == "blocked"
    assert place in (seen.reason or "")
    assert not (tmp_path / "bare" / "scripts").exists()


def test_the_origin_on_github_becomes_ssh_and_who_commits_is_set(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = make_runtime(
        projects__github_ssh=True, projects__git_user="Ratchet Bot", projects__git_email="bot@example.org"
    )
    local = make_local(tmp_path / "demo")
    git(local, "remote", "add", "origin", "https://github.com/example/demo.git")
    project = onboard(runtime, local_path=str(local))
    assert git(local, "config", "remote.origin.url") == "git@github.com:example/demo.git"
    assert git(local, "config", "user.name") == "Ratchet Bot"
    assert project.facts["identity"] == {"name": "Ratchet Bot", "email": "bot@example.org"}
    assert project.remote == "github.com/example/demo"
    assert {"setup_git_remote", "setup_git_identity"} <= set(types(runtime, project.id))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[user]\n\tname = Ada\n\temail = ada@example.org\n", {"name": "Ada", "email": "ada@example.org"}),
        ("[user]\n\tname = Ada\n", None),
        ("[user]\n\tname = A<da\n\temail = ada@example.org\n", None),
        ("[include]\n\tpath = other\n", None),
        ("no configuration", None),
    ],
)
def test_a_repository_that_names_nobody_takes_the_global_identity_and_nothing_else(
    runtime: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    named: dict[str, str] | None,
) -> None:
    local = make_local(tmp_path / "demo")
    (tmp_path / "global").write_text(text)
    (tmp_path / "other").write_text("[user]\n\tname = Eve\n\temail = eve@example.org\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global"))
    for key in ("user.name", "user.email"):
        subprocess.run(["git", "-C", str(local), "config", "--local", "--unset", key], check=False)
    project = onboard(runtime, local_path=str(local))
    assert project.facts.get("identity") == named
    assert git(local, "config", "--local", "--list").count("user.") == 0
    with runtime.ledger.read() as tx:
        [event] = latest(tx.connection, where=EventFilter(type="setup_git_identity"), limit=1)
    assert f"commits are by {named['name'] if named else 'Ratchet: neither'}" in (event.message or "")


def test_a_password_in_the_origin_of_a_repository_is_neither_used_nor_kept(
    runtime: Runtime, tmp_path: Path
) -> None:
    local = make_local(tmp_path / "demo")
    git(local, "remote", "add", "origin", "https://ada:hunter2secret@github.com/example/demo.git")
    project = onboard(runtime, local_path=str(local))
    assert project.git_url == "https://github.com/example/demo.git"
    assert "setup_warning" in types(runtime, project.id)
    kept = json.dumps([str(event) for event in told(runtime, project.id)]) + str(project)
    assert "hunter2secret" not in kept


def test_a_hostile_origin_of_a_repository_is_not_used(runtime: Runtime, tmp_path: Path) -> None:
    local = make_local(tmp_path / "demo")
    git(local, "config", "remote.origin.url", f"ext::sh -c 'touch {tmp_path}/owned'")
    project = onboard(runtime, local_path=str(local))
    assert setup_status(runtime, project) is RunStatus.COMPLETED
    assert project.git_url is None
    assert not (tmp_path / "owned").exists()


@pytest.mark.soak
def test_required_answers_block_until_the_last_one_is_given(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = make_runtime(projects__require_clarifications=True)
    local = make_local(tmp_path / "demo")
    git(local, "remote", "add", "origin", "https://github.com/example/demo.git")
    project = onboard(runtime, local_path=str(local))
    assert setup_status(runtime, project) is RunStatus.BLOCKED
    assert types(runtime, project.id)[-1] == "setup_blocked"
    seen = view(runtime, project)
    assert seen.stages[-1].status == "blocked"
    assert all(key in (seen.reason or "") for key in KEYS)
    for key, said in ANSWERS.items():
        assert setup_status(runtime, project) is RunStatus.BLOCKED
        say(runtime, project, key, said)
    do_all(runtime)
    settled = project_of(runtime, project.id)
    assert setup_status(runtime, settled) is RunStatus.COMPLETED
    assert (settled.ci_provider, settled.default_models) == ("gitlab", {"exec": "big"})
    wanted = {key: ANSWERS[key] for key in ("prefer_ssh", "branch_naming", "required_checks", "pr_policy")}
    assert {key: settled.facts[key] for key in wanted} == wanted
    assert (settled.facts["identity"], settled.facts["engine_discovery"]) == (IDENTITY, False)
    assert git(local, "config", "user.name") == "Ada"
    assert git(local, "config", "remote.origin.url") == "git@github.com:example/demo.git"
    assert types(runtime, project.id).count("setup_clarifications") == 1


def test_setting_up_again_keeps_what_people_have_settled(runtime: Runtime, tmp_path: Path) -> None:
    local = make_local(tmp_path / "demo")
    project = onboard(runtime, local_path=str(local))
    say(runtime, project, "required_checks", ["build"])
    say(runtime, project, "git_identity", IDENTITY)
    again(runtime, project)
    settled = project_of(runtime, project.id)
    assert settled.setup_run_id != project.setup_run_id
    assert setup_status(runtime, settled) is RunStatus.COMPLETED
    assert (settled.facts["required_checks"], settled.facts["identity"]) == (["build"], IDENTITY)
    assert list(questions(runtime, project)) == KEYS


@pytest.mark.soak
@pytest.mark.parametrize("after_commit", [False, True], ids=["before-commit", "after-commit"])
def test_killed_at_any_write_it_goes_on_and_does_nothing_twice(
    runtime: Runtime, remote: Path, after_commit: bool
) -> None:
    died = 0
    for number in range(1, 40):
        name = f"demo-{number}"
        project_id = register(runtime, name=name, git_url=str(remote), ci_files=True)
        job = take(runtime)
        assert job is not None
        job.writes_left, job.after_commit = number, after_commit
        try:
            asyncio.run(set_up(job))
        except Died:
            died += 1
            job.writes_left = None
            asyncio.run(set_up(job))
        finish(runtime, job)
        assert setup_status(runtime, project_of(runtime, project_id)) is RunStatus.COMPLETED
        happened = [type for type in types(runtime, project_id) if type.startswith("setup_")]
        once = ("setup_started", "setup_cloned", "setup_assets", "setup_clarifications", "setup_completed")
        # A clone that is there is not made again; whoever made it could only tell of it in the write that failed.
        assert all(happened.count(each) <= 1 for each in once)
        assert {"setup_started", "setup_assets", "setup_clarifications", "setup_completed"} <= set(happened)
        if died < number:
            break
    assert died >= 10


@pytest.mark.soak
def test_a_cancelled_onboarding_ends_its_git_and_stays_cancelled(runtime: Runtime, worker: Worker) -> None:
    with http_remote(hang=True) as server:
        project = project_of(runtime, register(runtime, git_url=server.url))
        assert server.asked.wait(60)
        assert project.setup_run_id is not None
        with runtime.ledger.write() as tx:
            cancel_run(tx, runtime, project.setup_run_id)
        eventually(lambda: not with_word(server.url))
    with runtime.ledger.read() as tx:
        assert get_run(tx, project.setup_run_id).status is RunStatus.CANCELLED


def test_a_job_that_comes_late_changes_nothing(runtime: Runtime, remote: Path) -> None:
    project = project_of(runtime, register(runtime, git_url=str(remote)))
    job = take(runtime)
    assert job is not None
    asyncio.run(set_up(job))
    before = types(runtime, project.id)
    asyncio.run(set_up(job))
    assert types(runtime, project.id) == before


def test_no_secret_is_anywhere_in_what_an_onboarding_writes(runtime: Runtime, tmp_path: Path) -> None:
    secrets = {
        name: f"{name}-value-0815" for name in ("api_token", "webhook_secret", "git_token", "forge_token")
    }
    with http_remote(status=401) as server:
        project = onboard(runtime, git_url=server.url, secrets=secrets)
    assert setup_status(runtime, project) is RunStatus.BLOCKED
    assert server.headers
    for file in tmp_path.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [name for name, value in secrets.items() if value.encode() in content], file
