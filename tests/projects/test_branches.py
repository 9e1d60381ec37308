from pathlib import Path

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError, RunStatus
from ratchet.ledger import change_run
from ratchet.ledger.protocols import add_protocol
from ratchet.ledger.runs import create_run
from ratchet.projects.address import CloneMissing, RemoteFailed, Unconfirmed
from ratchet.projects.clone import delete_branch, list_branches
from ratchet.runtime import Runtime
from tests.projects.conftest import sqlite_only
from tests.projects.jobs import onboard, register, told, types
from tests.projects.repositories import branches, commit_on


@pytest.fixture
def project(runtime: Runtime, remote: Path) -> int:
    commit_on(remote, "0001-work", name="work")
    commit_on(remote, "feature/old", name="old")
    return onboard(runtime, git_url=str(remote)).id


def delete(runtime: Runtime, project: int, branch: str, *, confirm: bool = True) -> None:
    delete_branch(runtime, project, branch, confirm=confirm, actor="ada", request_id="r-1")


def protocol_on(runtime: Runtime, project: int, name: str) -> int:
    with runtime.ledger.write() as tx:
        run = create_run(tx, "protocol", name, project_id=project)
        add_protocol(tx, run, project, name, base_branch="main")
        return run


@pytest.mark.soak
def test_branches_are_listed_and_deleted_and_both_are_told(
    runtime: Runtime, project: int, remote: Path
) -> None:
    assert list_branches(runtime, project, actor="ada") == ["0001-work", "feature/old", "main"]
    delete(runtime, project, "feature/old")
    assert branches(remote) == ["0001-work", "main"]
    listed, deleted = told(runtime, project)[-2:]
    assert (listed.type, listed.actor, listed.data) == ("branches_listed", "ada", {"count": 3})
    assert (deleted.type, deleted.request_id, deleted.data) == (
        "branch_deleted",
        "r-1",
        {"branch": "feature/old"},
    )


@pytest.mark.soak
@sqlite_only
@pytest.mark.parametrize(
    ("branch", "confirm", "error"),
    [
        ("0001-work", False, Unconfirmed),
        ("main", True, Conflict),
        ("nothing", True, NotFound),
        ("work", True, NotFound),
        ("a'b", True, Misuse),
        ('a"b', True, Misuse),
        ("a..b", True, Misuse),
        ("--all", True, Misuse),
        ("a b", True, Misuse),
        ("a\nb", True, Misuse),
        (":main", True, Misuse),
    ],
)
def test_what_must_not_be_deleted_stays_and_the_try_is_told(
    runtime: Runtime, project: int, remote: Path, branch: str, confirm: bool, error: type[RatchetError]
) -> None:
    with pytest.raises(error):
        delete(runtime, project, branch, confirm=confirm)
    assert branches(remote) == ["0001-work", "feature/old", "main"]
    last = told(runtime, project)[-1]
    assert (last.type, last.data) == ("branch_delete_failed", {"branch": branch})


@pytest.mark.soak
@sqlite_only
def test_the_branch_of_a_protocol_stays_until_the_protocol_has_ended(
    runtime: Runtime, project: int, remote: Path
) -> None:
    run = protocol_on(runtime, project, "0001-work")
    with pytest.raises(Conflict, match=f"protocol {run}"):
        delete(runtime, project, "0001-work")
    with runtime.ledger.write() as tx:
        change_run(tx, run, RunStatus.CANCELLED)
    delete(runtime, project, "0001-work")
    assert "0001-work" not in branches(remote)


@sqlite_only
def test_a_project_that_is_not_here_is_told_so(runtime: Runtime, remote: Path) -> None:
    project = register(runtime, git_url=str(remote))
    with pytest.raises(CloneMissing):
        list_branches(runtime, project, actor="ada")
    with pytest.raises(CloneMissing):
        delete(runtime, project, "feature/old")
    assert types(runtime, project)[-1] == "branch_delete_failed"
    with pytest.raises(NotFound):
        list_branches(runtime, 999, actor="ada")


@sqlite_only
def test_a_remote_that_is_gone_is_told(runtime: Runtime, project: int, remote: Path) -> None:
    remote.rename(remote.with_name("moved"))
    with pytest.raises(RemoteFailed, match="ls-remote"):
        delete(runtime, project, "feature/old")
    assert types(runtime, project)[-1] == "branch_delete_failed"
