"""Where plans begin: at the base as it is now, on a branch that is nobody else's, whatever state the clone is in."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ratchet.engines import Capabilities, Engine, Readiness, Request, Session
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.kernel import RunStatus
from ratchet.ledger.projects import add_facts
from ratchet.modelserver import answer
from tests.protocols.planning.conftest import NAME, Desk
from tests.protocols.planning.plans import plan, step
from tests.protocols.world import git

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
GOOD = answer(plan())
BAD = answer(plan(step("01-a.md", depends_on=["07-nowhere.md"])))


def push(desk: Desk, path: str) -> str:
    """A new commit on the base branch of the remote."""
    file = desk.home / "seed" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("new\n")
    git(desk.home / "seed", "add", ".")
    git(desk.home / "seed", "commit", "-qm", f"add {path}")
    git(desk.home / "seed", "push", "-q", str(desk.remote), "HEAD:main")
    return git(desk.remote, "rev-parse", "main")


def set_up(desk: Desk) -> None:
    """Ask for CI files."""
    with desk.runtime.ledger.write(actor="test") as tx:
        add_facts(tx, desk.project_id, {"ci_files": True})


def test_a_plan_that_failed_leaves_no_branch_and_a_good_one_only_the_plan(desk: Desk) -> None:
    desk.open(BAD, **{"protocols.repairs": 0})
    failed = desk.plan()
    assert failed.status is RunStatus.BLOCKED
    assert desk.git("for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"
    desk.open(GOOD)
    planned = desk.again(failed)
    assert planned.status is RunStatus.PLANNED, planned.reason
    changed = desk.git("diff", "--name-only", "main", NAME).splitlines()
    assert changed
    assert all(path.startswith(".protocols/") for path in changed)


@pytest.mark.soak
def test_a_plan_begins_at_the_base_as_the_remote_has_it_now(desk: Desk) -> None:
    desk.open(GOOD)
    before = desk.git("rev-parse", "HEAD")
    now = push(desk, "new.txt")
    planned = desk.plan()
    assert planned.base_commit == now != before
    assert desk.git("rev-parse", f"{NAME}^") == now


@pytest.mark.soak
def test_started_again_it_begins_at_what_the_base_is_by_then(desk: Desk) -> None:
    desk.open(BAD, **{"protocols.repairs": 0})
    failed = desk.plan()
    assert failed.status is RunStatus.BLOCKED
    now = push(desk, "new.txt")
    desk.open(GOOD)
    planned = desk.again(failed)
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert desk.git("rev-parse", f"{NAME}^") == planned.base_commit == now


@pytest.mark.soak
def test_a_branch_of_somebody_else_is_left_alone_and_says_what_to_do(desk: Desk) -> None:
    script = desk.open(GOOD)
    desk.git("commit", "-qm", "mine", "--allow-empty")
    desk.git("branch", NAME)
    mine = desk.git("rev-parse", NAME)
    refused = desk.plan()
    assert refused.status is RunStatus.BLOCKED
    assert f"the branch {NAME}" in (refused.reason or "")
    assert "rename or delete it" in (refused.reason or "")
    assert (desk.git("rev-parse", NAME), script.requests) == (mine, [])
    desk.git("branch", "-m", NAME, "mine")
    assert desk.again(refused).status is RunStatus.PLANNED


@pytest.mark.soak
def test_a_branch_that_is_only_at_the_remote_is_refused_too(desk: Desk) -> None:
    script = desk.open(GOOD)
    git(desk.remote, "branch", NAME, "main")
    refused = desk.plan()
    assert refused.status is RunStatus.BLOCKED
    assert "exists already at" in (refused.reason or "")
    assert script.requests == []


@pytest.mark.soak
def test_a_branch_that_somebody_moved_meanwhile_is_not_written_over(desk: Desk) -> None:
    desk.open(BAD, **{"protocols.repairs": 0})
    failed = desk.plan()
    foreign = desk.git("commit-tree", "main^{tree}", "-p", "main", "-m", "foreign")
    desk.git("update-ref", f"refs/heads/{NAME}", foreign)
    desk.open(GOOD)
    refused = desk.again(failed)
    assert refused.status is RunStatus.BLOCKED
    assert foreign[:12] in (refused.reason or "")
    assert desk.git("rev-parse", NAME) == foreign


@pytest.mark.soak
def test_a_branch_that_a_person_has_checked_out_is_not_moved_under_them(desk: Desk) -> None:
    desk.open(BAD, **{"protocols.repairs": 0})
    failed = desk.plan()
    desk.git("checkout", "-qb", NAME)
    desk.open(GOOD)
    refused = desk.again(failed)
    assert refused.status is RunStatus.BLOCKED
    assert "checked out" in (refused.reason or "")
    desk.git("checkout", "-q", "main")
    # The plan was accepted already, so nobody is asked again.
    planned = desk.again(refused)
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert len(desk.sessions(planned)) == 2


@pytest.mark.soak
def test_a_base_that_does_not_exist_is_named(desk: Desk) -> None:
    script = desk.open(GOOD)
    refused = desk.plan(base_branch="trunk")
    assert refused.status is RunStatus.BLOCKED
    assert "'trunk'" in (refused.reason or "")
    assert script.requests == []


@pytest.mark.soak
@pytest.mark.parametrize("branch", ["../main", "--upload-pack=touch x", "a'b"])
def test_a_base_that_is_no_name_of_a_branch_reaches_no_git(desk: Desk, branch: str) -> None:
    desk.open(GOOD)
    refused = desk.plan(base_branch=branch)
    assert refused.status is RunStatus.BLOCKED
    assert "cannot be the name of a branch" in (refused.reason or "")


@pytest.mark.soak
def test_a_remote_that_vanished_is_no_plan_and_planning_goes_on_when_it_is_back(desk: Desk) -> None:
    script = desk.open(GOOD)
    desk.git("status")
    desk.remote.rename(desk.home / "away.git")
    refused = desk.plan()
    assert refused.status is RunStatus.BLOCKED
    assert "remote.git" in (refused.reason or "")
    assert script.requests == []
    (desk.home / "away.git").rename(desk.remote)
    assert desk.again(refused).status is RunStatus.PLANNED


@pytest.mark.soak
def test_uncommitted_work_of_a_person_does_not_matter_and_stays(desk: Desk) -> None:
    desk.open(GOOD)
    mine = desk.home / "mine"
    git(desk.home, "clone", "-q", str(desk.remote), str(mine))
    desk.change_project(local_path=str(mine))
    (mine / "README.md").write_text("unfinished\n")
    (mine / "scratch.txt").write_text("unfinished\n")
    git(mine, "add", "README.md")
    before = git(mine, "status", "--porcelain=v1")
    planned = desk.plan()
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert git(mine, "status", "--porcelain=v1") == before
    assert git(mine, "diff", "--name-only", "main", NAME).startswith(".protocols/")
    assert (mine / "README.md").read_text() == "unfinished\n"
    assert git(mine, "symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.soak
def test_a_repository_without_a_remote_begins_at_its_own_branch(desk: Desk) -> None:
    desk.open(GOOD)
    alone = desk.home / "alone"
    shutil.copytree(desk.home / "seed", alone)
    desk.change_project(local_path=str(alone), git_url=None)
    planned = desk.plan()
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert planned.base_commit == git(alone, "rev-parse", "main")


@dataclass
class Locker:
    """An engine that leaves a lock on the branch, as a git does that was killed."""

    engine: Engine
    lock: Path
    name: str = "llm"
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(structured_output=True))

    async def propose(self, request: Request) -> Session:
        self.lock.touch()
        return await self.engine.propose(request)

    async def check(self) -> Readiness:
        return await self.engine.check()


@pytest.mark.soak
def test_a_locked_branch_costs_no_second_session(desk: Desk) -> None:
    script = desk.open(GOOD)
    lock = desk.clone / ".git" / "refs" / "heads" / f"{NAME}.lock"
    engine = open_engine("llm", EngineContext(desk.runtime.settings, desk.home, {}))
    desk.open(engine=Locker(engine, lock))
    refused = desk.plan()
    assert refused.status is RunStatus.BLOCKED
    assert "lock" in (refused.reason or "")
    lock.unlink()
    planned = desk.again(refused)
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert (len(script.requests), len(desk.sessions(planned))) == (1, 1)


@pytest.mark.soak
def test_an_accepted_plan_outlives_the_clone_that_it_was_made_in(desk: Desk) -> None:
    script = desk.open(GOOD)
    set_up(desk)
    engine = open_engine("llm", EngineContext(desk.runtime.settings, desk.home, {}))
    clone = desk.clone
    desk.open(engine=Locker(engine, clone / ".git" / "refs" / "heads" / f"{NAME}.lock"))
    refused = desk.plan()
    assert refused.status is RunStatus.BLOCKED
    [ground] = {each.data["ground"] for each in desk.events(refused, "planning_started")}
    shutil.rmtree(clone)
    push(desk, "new.txt")
    planned = desk.again(refused)
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert len(script.requests) == 1
    assert desk.git("rev-parse", f"{NAME}^") == ground
    assert desk.git("rev-parse", f"{NAME}^^") == planned.base_commit


@pytest.mark.soak
def test_a_folder_that_the_base_has_already_is_not_mixed_with_a_new_plan(desk: Desk) -> None:
    script = desk.open(GOOD)
    push(desk, f".protocols/{NAME}/07-old.md")
    refused = desk.plan()
    assert refused.status is RunStatus.BLOCKED
    assert "07-old.md" in (refused.reason or "")
    assert script.requests == []


@pytest.mark.soak
def test_starter_assets_are_a_commit_of_their_own_before_the_plan(desk: Desk) -> None:
    desk.open(GOOD, GOOD)
    set_up(desk)
    planned = desk.plan()
    assert planned.status is RunStatus.PLANNED, planned.reason
    first, second = desk.git("log", "--reverse", "--format=%s", f"main..{NAME}").splitlines()
    assert first.startswith("chore(ci)")
    assert second.startswith("feat(protocol)")
    assert "scripts/ci/test.sh" in desk.git("diff", "--name-only", "main", f"{NAME}^").splitlines()
    assert planned.base_commit == desk.git("rev-parse", "main")
    git(desk.clone, "push", "-q", str(desk.remote), f"{NAME}^:main")
    desk.plan("0002-again")
    assert desk.git("rev-parse", "0002-again^") == desk.git("rev-parse", f"{NAME}^")
