from pathlib import Path

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound, RunStatus
from ratchet.ledger.projects import find_project, list_projects, projects_of_remote
from ratchet.ledger.runs import get_run
from ratchet.projects.registration import register_project, set_up_again, update_project
from ratchet.projects.secrets import secret_names
from ratchet.runtime import Runtime, list_jobs
from tests.projects.conftest import sqlite_only
from tests.projects.jobs import project_of, register, told

URL = "https://github.com/Example/Demo.git"


def test_a_project_its_secrets_and_its_onboarding_are_registered_together(runtime: Runtime) -> None:
    number = register(
        runtime, git_url=URL, base_branch="trunk", ci_provider="github", default_models={"qa": "big"},
        secrets={"git_token": "token-of-demo"},
    )  # fmt: skip
    project = project_of(runtime, number)
    assert (project.name, project.git_url, project.remote) == ("demo", URL, "github.com/example/demo")
    assert (project.base_branch, project.ci_provider, project.default_models) == (
        "trunk",
        "github",
        {"qa": "big"},
    )
    assert project.setup_run_id is not None
    with runtime.ledger.read() as tx:
        run = get_run(tx, project.setup_run_id)
        [job] = list_jobs(tx)
        assert secret_names(tx, number) == ["git_token"]
        assert [each.id for each in projects_of_remote(tx, "github.com/example/demo")] == [number]
    assert (run.kind, run.name, run.status, run.project_id) == (
        "protocol", f"setup-{number}", RunStatus.PENDING, number,
    )  # fmt: skip
    assert (job.kind, job.run_id) == ("project_setup", run.id)
    assert [event.type for event in told(runtime, number)][-1] == "setup_enqueued"
    assert "token-of-demo" not in str(told(runtime, number))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"git_url": "ext::sh -c id"},
        {"git_url": URL, "name": ""},
        {"git_url": URL, "name": "a\nb"},
        {"git_url": URL, "base_branch": "a..b"},
        {"git_url": URL, "ci_provider": "jenkins"},
        {"git_url": URL, "default_models": {"exec": 7}},
        {"git_url": URL, "default_models": {"cooking": "x"}},
        {"git_url": URL, "secrets": {"pin": "1234567"}},
        {"local_path": "relative"},
        {"local_path": "/a\0b"},
    ],
)
@sqlite_only
def test_what_cannot_be_meant_leaves_nothing(runtime: Runtime, wrong: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        register(runtime, **wrong)
    with runtime.ledger.read() as tx:
        assert list_projects(tx) == []
        assert list_jobs(tx) == []


def test_a_name_belongs_to_one_project(runtime: Runtime) -> None:
    register(runtime, git_url=URL)
    with runtime.ledger.write() as tx:
        with pytest.raises(Conflict, match="'demo'"):
            register_project(tx, runtime, name="demo", git_url=URL)
        other = register_project(tx, runtime, name="other", git_url=URL)
        with pytest.raises(Conflict):
            update_project(tx, runtime, other, {"name": "demo"})
    with runtime.ledger.read() as tx:
        assert [each.name for each in list_projects(tx)] == ["other", "demo"]
        assert [each.name for each in list_projects(tx, limit=1)] == ["other"]
        assert [each.name for each in list_projects(tx, before=other)] == ["demo"]


@sqlite_only
def test_a_project_is_changed_checked_like_a_new_one_and_archived(runtime: Runtime) -> None:
    number = register(runtime, git_url=URL)
    with runtime.ledger.write() as tx:
        update_project(tx, runtime, number, {"git_url": "git@host:a/b", "base_branch": "dev"})
        with pytest.raises(Misuse):
            update_project(tx, runtime, number, {"token_hash": "x"})
        with pytest.raises(NotFound):
            update_project(tx, runtime, 999, {"base_branch": "dev"})
        update_project(tx, runtime, number, {"archived": True, "secrets": {"git_token": "token-of-demo"}})
        assert list_projects(tx) == []
        assert projects_of_remote(tx, "host/a/b") == []
        found = find_project(tx, "demo")
        assert found is not None
        assert (found.base_branch, found.remote, secret_names(tx, number)) == (
            "dev",
            "host/a/b",
            ["git_token"],
        )
        update_project(tx, runtime, number, {"archived": False})
        assert len(projects_of_remote(tx, "host/a/b")) == 1


@sqlite_only
def test_an_onboarding_that_waits_in_line_is_not_begun_twice(runtime: Runtime, tmp_path: Path) -> None:
    number = register(runtime, local_path=str(tmp_path))
    with runtime.ledger.write() as tx, pytest.raises(Conflict, match="pending already"):
        set_up_again(tx, runtime, number)
