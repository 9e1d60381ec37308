import base64
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.kernel import Misuse, NotFound
from ratchet.ledger.projects import Project, add_project, change_project, get_project
from ratchet.projects.address import CloneMissing, PushRefused, RemoteFailed
from ratchet.projects.clone import Clone, open_clone
from ratchet.projects.secrets import put_secrets
from ratchet.projects.transfer import Transfer
from ratchet.runtime import Runtime
from tests.projects.conftest import MakeRuntime, sqlite_only
from tests.projects.http_remote import http_remote
from tests.projects.jobs import project_of
from tests.projects.processes import command_lines, with_word
from tests.projects.repositories import branches, commit_on, git, head, make_local, make_remote
from tests.waiting import eventually

pytestmark = sqlite_only


def add(runtime: Runtime, **values: object) -> Project:
    with runtime.ledger.write() as tx:
        return get_project(tx, add_project(tx, "demo", **values))


@pytest.fixture
def project(runtime: Runtime, remote: Path) -> Project:
    return add(runtime, git_url=f"file://{remote}")


def commit_in(clone: Clone, parent: str, name: str) -> str:
    return clone.repository.commit_files({name: b"x"}, parent=parent, message=name)


def test_a_project_is_cloned_into_its_own_place(runtime: Runtime, project: Project, tmp_path: Path) -> None:
    with open_clone(runtime, project) as clone:
        assert clone.path == tmp_path / "projects" / str(project.id) / "origin"
        assert clone.repository.workspaces == tmp_path / "projects" / str(project.id) / "worktrees"
        assert (clone.path / "README.md").read_text() == "# Demo\n"
        assert git(clone.path, "config", "remote.origin.url") == project.git_url
    with open_clone(runtime, project, make=False) as again:
        assert again.path == clone.path


def test_the_root_of_projects_is_where_it_is_configured(
    make_runtime: MakeRuntime, remote: Path, tmp_path: Path
) -> None:
    runtime = make_runtime(projects__root=str(tmp_path / "elsewhere"))
    project = add(runtime, git_url=str(remote))
    with open_clone(runtime, project) as clone:
        assert clone.path == tmp_path / "elsewhere" / str(project.id) / "origin"


def test_nothing_is_cloned_where_that_is_not_wanted(make_runtime: MakeRuntime, remote: Path) -> None:
    runtime = make_runtime(projects__auto_clone=False)
    project = add(runtime, git_url=str(remote))
    with pytest.raises(CloneMissing, match="auto_clone is off") as missing:
        open_clone(runtime, project)
    assert f"git clone {remote}" in (missing.value.hint or "")
    assert not (runtime.home / "projects").exists()


@pytest.mark.parametrize("name", ["worktrees", "under-way"])
def test_a_repository_may_be_called_like_what_lies_beside_it(
    runtime: Runtime, tmp_path: Path, name: str
) -> None:
    project = add(runtime, git_url=str(make_remote(tmp_path / "remotes" / name)))
    with open_clone(runtime, project) as clone, clone.repository.workspace("HEAD") as workspace:
        assert clone.path.name == f"{name}.repository"
        assert (workspace.path / "README.md").exists()


def test_a_local_repository_that_vanished_is_told_and_not_replaced(
    runtime: Runtime, remote: Path, tmp_path: Path
) -> None:
    project = add(runtime, git_url=str(remote), local_path=str(tmp_path / "gone"))
    with pytest.raises(CloneMissing, match="gone"):
        open_clone(runtime, project)


def test_a_clone_that_fails_leaves_nothing(runtime: Runtime, tmp_path: Path) -> None:
    project = add(runtime, git_url=f"file://{tmp_path}/nothing")
    with pytest.raises(CloneMissing, match="could not be cloned"):
        open_clone(runtime, project)
    assert [each.name for each in (tmp_path / "projects" / str(project.id)).iterdir()] == ["under-way"]


def test_of_those_who_clone_at_once_all_get_the_same_whole_clone(runtime: Runtime, project: Project) -> None:
    def opened(_: int) -> Path:
        with open_clone(runtime, project) as clone:
            return clone.path

    with ThreadPoolExecutor(3) as threads:
        [path] = set(threads.map(opened, range(3)))
    assert git(path, "status", "--porcelain") == ""
    assert [each.name for each in (path.parent / "under-way").iterdir()] == ["repository"]


def test_a_branch_is_fetched_as_the_remote_has_it_now(
    runtime: Runtime, project: Project, remote: Path
) -> None:
    with open_clone(runtime, project) as clone:
        first = clone.fetch("main")
        second = commit_on(remote, "main", name="second", parent=first)
        assert clone.fetch("main") == second
        assert clone.repository.read_file(second, "second") == b"second"
        assert git(clone.path, "rev-parse", "origin/main") == second
        rewritten = commit_on(remote, "main", name="rewritten")
        assert clone.fetch("main") == rewritten
        assert git(clone.path, "rev-parse", "main") == first
        with pytest.raises(NotFound, match="nothing"):
            clone.fetch("nothing")
        with pytest.raises(Misuse):
            clone.fetch("--upload-pack=x")


def test_a_repository_without_a_remote_has_its_own_branches(runtime: Runtime, tmp_path: Path) -> None:
    local = make_local(tmp_path / "mine")
    project = add(runtime, local_path=str(local))
    with open_clone(runtime, project) as clone:
        assert clone.origin is None
        assert clone.fetch("main") == head(local)
        assert clone.remote_branches() == ["main"]
        with pytest.raises(NotFound):
            clone.fetch("other")
        with pytest.raises(PushRefused, match="has no remote"):
            clone.push(head(local), "work")


def test_a_push_brings_exactly_the_commit_and_again_changes_nothing(
    runtime: Runtime, project: Project, remote: Path
) -> None:
    with open_clone(runtime, project) as clone:
        base = clone.fetch("main")
        first = commit_in(clone, base, "first")
        second = commit_in(clone, first, "second")
        clone.push(first, "0001-work")
        assert head(remote, "0001-work") == first
        clone.push(second, "0001-work")
        clone.push(second, "0001-work")
        assert head(remote, "0001-work") == second
        assert clone.remote_branches() == ["0001-work", "main"]
        assert head(remote) == base


@pytest.mark.soak
def test_a_push_never_takes_the_work_of_others_away(runtime: Runtime, project: Project, remote: Path) -> None:
    with open_clone(runtime, project) as clone:
        base = clone.fetch("main")
        mine = commit_in(clone, base, "mine")
        theirs = commit_on(remote, "0001-work", name="theirs", parent=base)
        with pytest.raises(PushRefused, match=theirs[:12]) as refused:
            clone.push(mine, "0001-work")
        assert "someone else" in (refused.value.hint or "")
        clone.push(commit_in(clone, mine, "later"), "0002-work")
        with pytest.raises(PushRefused):
            clone.push(mine, "0002-work")
    assert head(remote, "0001-work") == theirs


@pytest.mark.soak
def test_a_remote_that_refuses_the_push_says_why(runtime: Runtime, project: Project, remote: Path) -> None:
    write_hook(remote, "pre-receive", "echo 'no pushes on Fridays' >&2\nexit 1")
    with open_clone(runtime, project) as clone:
        commit = commit_in(clone, clone.fetch("main"), "mine")
        with pytest.raises(PushRefused, match="pre-receive hook declined"):
            clone.push(commit, "0001-work")
    assert branches(remote) == ["main"]


def write_hook(remote: Path, name: str, script: str) -> None:
    hook = remote / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)


def test_a_push_waits_for_the_lock_of_another_push(runtime: Runtime, project: Project, remote: Path) -> None:
    lock = remote / "refs" / "heads" / "0001-work.lock"
    lock.touch()
    # The other push ends between our first and our second try.
    write_hook(remote, "pre-receive", f"test -e tried && rm -f {lock}; touch tried")
    with open_clone(runtime, project) as clone:
        commit = commit_in(clone, clone.fetch("main"), "mine")
        clone.push(commit, "0001-work")
    assert head(remote, "0001-work") == commit
    assert (remote / "tried").exists()


def test_a_push_that_is_stopped_leaves_no_lock_at_the_remote(
    runtime: Runtime, project: Project, remote: Path
) -> None:
    # Runs while receive-pack holds the lock of the branch.
    write_hook(remote, "reference-transaction", "test $1 = prepared && touch locked && exec sleep 600; true")
    with open_clone(runtime, project) as clone:
        commit = commit_in(clone, clone.fetch("main"), "mine")
        with ThreadPoolExecutor(1) as threads:
            pushing = threads.submit(clone.push, commit, "0001-work")
            eventually((remote / "locked").exists)
            assert (remote / "refs" / "heads" / "0001-work.lock").exists()
            clone.close()
            with pytest.raises(RemoteFailed, match="was stopped"):
                pushing.result(timeout=60)
    assert not (remote / "refs" / "heads" / "0001-work.lock").exists()


@pytest.mark.soak
def test_a_clone_whose_configuration_was_turned_against_us_runs_nothing(
    runtime: Runtime, project: Project, remote: Path, tmp_path: Path
) -> None:
    owned = tmp_path / "owned"
    with open_clone(runtime, project) as clone:
        script = tmp_path / "evil.sh"
        script.write_text(f'#!/bin/sh\ntouch {owned}\nexec git-upload-pack "$@"\n')
        script.chmod(0o755)
        for key, value in {
            "remote.origin.url": "ext::sh -c evil",
            "remote.origin.uploadpack": str(script),
            "remote.origin.receivepack": str(script),
            f"remote.file://{remote}.uploadpack": str(script),
            f"remote.file://{remote}.receivepack": str(script),
            f"url.ext::{script} .insteadOf": "file://",
            "protocol.ext.allow": "always",
            "core.sshCommand": str(script),
            "core.fsmonitor": str(script),
            "core.alternateRefsCommand": str(script),
            "credential.helper": f"!{script}",
            "core.hooksPath": str(tmp_path),
        }.items():
            git(clone.path, "config", key, value)
        (tmp_path / "pre-push").write_text(f"#!/bin/sh\ntouch {owned}\n")
        (tmp_path / "pre-push").chmod(0o755)
        base = clone.fetch("main")
        new = commit_on(remote, "main", name="new", parent=base)
        assert clone.fetch("main") == new
        clone.push(commit_in(clone, new, "mine"), "0001-work")
        clone.delete_remote_branch("0001-work")
    assert branches(remote) == ["main"]
    assert not owned.exists()


def test_a_deleted_branch_is_gone_and_unknown_ones_are_told(
    runtime: Runtime, project: Project, remote: Path
) -> None:
    commit_on(remote, "old/work", name="old")
    with open_clone(runtime, project) as clone:
        clone.fetch("old/work")
        clone.delete_remote_branch("old/work")
        assert branches(remote) == ["main"]
        assert git(clone.path, "for-each-ref", "refs/remotes/origin/old") == ""
        with pytest.raises(NotFound):
            clone.delete_remote_branch("work")


def test_the_token_goes_in_a_header_and_nowhere_else(runtime: Runtime, tmp_path: Path) -> None:
    token = "token-4711-of-the-test"
    with http_remote(hang=True) as server:
        project = add(runtime, git_url=server.url)
        with runtime.ledger.write() as tx:
            put_secrets(tx, runtime, project.id, {"git_token": token})
        seen: list[BaseException] = []

        def work() -> None:
            try:
                open_clone(runtime, project)
            except CloneMissing as error:
                seen.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert server.asked.wait(60)
        lines = command_lines()
    thread.join()
    basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    assert server.headers[0]["Authorization"] == f"Basic {basic}"
    assert any(server.url in line for line in lines.values())
    assert not any(token in line or basic in line for line in lines.values())
    assert token not in f"{seen[0]} {seen[0].__cause__}"
    everything = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert token.encode() not in everything
    assert basic.encode() not in everything


def test_a_token_is_not_sent_on_to_where_a_server_points(runtime: Runtime) -> None:
    with http_remote(status=404) as other, http_remote(status=302, location=other.url) as server:
        project = add(runtime, git_url=server.url)
        with runtime.ledger.write() as tx:
            put_secrets(tx, runtime, project.id, {"git_token": "token-4712"})
        with pytest.raises(CloneMissing):
            open_clone(runtime, project)
    assert server.headers
    assert other.headers == []


def test_a_token_is_not_sent_unencrypted(runtime: Runtime) -> None:
    project = add(runtime, git_url="http://git.example.org/a/b")
    with runtime.ledger.write() as tx:
        put_secrets(tx, runtime, project.id, {"git_token": "token-4713"})
    with pytest.raises(Misuse, match="unencrypted"):
        open_clone(runtime, project)


def test_a_remote_that_wants_a_password_gets_none_and_a_hint_is_given(runtime: Runtime) -> None:
    with http_remote(status=401) as server:
        project = add(runtime, git_url=server.url)
        with pytest.raises(CloneMissing) as missing:
            open_clone(runtime, project)
    assert "git_token" in (missing.value.hint or "")


@pytest.mark.soak
def test_a_remote_that_never_answers_is_given_up_with_all_its_processes(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(projects__remote_seconds=1.0)
    with http_remote(hang=True) as server:
        project = add(runtime, git_url=server.url)
        with pytest.raises(CloneMissing, match="did not end within 1 s") as missing:
            open_clone(runtime, project)
        assert "projects.remote_seconds" in (missing.value.hint or "")
        eventually(lambda: not with_word(server.url))
    assert list((runtime.home / "projects" / str(project.id) / "under-way").glob("????????")) == []


def test_closing_a_clone_ends_what_it_waits_for(runtime: Runtime, tmp_path: Path) -> None:
    local = make_local(tmp_path / "mine")
    with http_remote(hang=True) as server:
        project = add(runtime, git_url=server.url, local_path=str(local))
        clone = open_clone(runtime, project)
        with ThreadPoolExecutor(1) as threads:
            fetching = threads.submit(clone.fetch, "main")
            assert server.asked.wait(60)
            clone.close()
            with pytest.raises(RemoteFailed, match="was stopped"):
                fetching.result(timeout=60)
        eventually(lambda: not with_word(server.url))


@pytest.mark.soak
def test_a_killed_process_leaves_no_git_behind_and_what_it_left_is_removed(
    runtime: Runtime, tmp_path: Path, remote: Path
) -> None:
    corner = tmp_path / "corner"
    script = (
        "import sys; from pathlib import Path; from ratchet.projects.transfer import Transfer\n"
        "Transfer.to(sys.argv[1], Path(sys.argv[2]), seconds=600).branches()"
    )
    with http_remote(hang=True) as server:
        process = subprocess.Popen([sys.executable, "-c", script, server.url, str(corner)])
        try:
            assert server.asked.wait(60)
            assert len(list(corner.glob("????????"))) == 1
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        eventually(lambda: not with_word(server.url))
    Transfer.to(str(remote), corner, seconds=60).branches()
    assert list(corner.glob("????????")) == []


def test_the_ledger_says_what_the_origin_is_and_not_the_clone(runtime: Runtime, project: Project) -> None:
    with open_clone(runtime, project) as clone:
        git(clone.path, "config", "remote.origin.url", "https://attacker.example/steal.git")
    with runtime.ledger.write() as tx:
        change_project(
            tx, project.id, facts={"prefer_ssh": True}, git_url="https://github.com/example/demo.git"
        )
    with runtime.ledger.write() as tx:
        change_project(tx, project.id, local_path=str(clone.path))
    with open_clone(runtime, project_of(runtime, project.id)) as again:
        assert again.origin == "git@github.com:example/demo.git"
