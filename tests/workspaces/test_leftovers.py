"""Processes that die in the middle, and what the next one finds and removes."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, cast

import pytest

from ratchet.workspaces import Repository, WorkspaceKind
from ratchet.workspaces.directories import remove_tree
from ratchet.workspaces.git import Conversation, Git, find_git
from tests.waiting import eventually
from tests.workspaces.conftest import fsck, git

_ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def actor(act: str, repository: Repository, kind: WorkspaceKind) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.workspaces.actors", act, str(repository.path), kind],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        cast(IO[str], process.stdout).close()


def _mounts(repository: Repository) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if str(repository.workspaces) in line.split(" ")[4]]


def _leftovers(repository: Repository) -> list[str]:
    """Whatever a workspace may leave anywhere."""
    corners = [
        path.name for path in repository.workspaces.iterdir() if path.name not in ("repository", "warm")
    ]
    administration = [path.name for path in (repository.path / "worktrees").glob("*")]
    branches = git(repository.path, "for-each-ref", "--format=%(refname)", "refs/heads/ratchet").split()
    unfinished = [path.name for path in (repository.path / "objects").glob("tmp_obj_*")]
    return corners + administration + branches + unfinished + _mounts(repository)


def test_the_git_process_of_a_repository_that_nobody_closed_ends(
    repository: Repository, recwarn: pytest.WarningsRecorder
) -> None:
    conversation = Conversation(Git(find_git(), repository.path), "cat-file", "--batch-check")
    with conversation.turn():
        conversation.say(b"HEAD\n")
        conversation.line()
    process = conversation._running().pid
    conversation.__dict__["itself"] = conversation  # garbage that only the collector finds
    del conversation
    gc.collect()
    assert not Path(f"/proc/{process}").exists()
    assert not recwarn.list


def test_what_a_killed_process_left_is_removed(repository: Repository, kind: WorkspaceKind) -> None:
    repository.close()
    with actor("hold", repository, kind) as process:
        path = Path(cast(IO[str], process.stdout).readline().strip())
        process.kill()
        process.wait()
        assert path.exists()
    assert repository.prune().workspaces == (path.name,)
    assert not path.exists()
    assert _leftovers(repository) == []
    assert repository.prune().workspaces == ()


def test_the_workspaces_of_a_living_process_stay(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    mine = repository.workspace(base, kind=kind)
    with actor("hold", repository, kind) as process:
        path = Path(cast(IO[str], process.stdout).readline().strip())
        with Repository.open(repository.path) as third:
            assert third.prune().workspaces == ()
        assert repository.prune().workspaces == ()
        assert (path / "README.md").exists()
        assert (mine.path / "README.md").exists()


@pytest.mark.soak
def test_killed_at_any_point_nothing_is_lost_and_nothing_stays(
    repository: Repository, kind: WorkspaceKind
) -> None:
    repository.close()
    told: list[str] = []
    chance = random.Random(7)
    for _ in range(8):
        with actor("work", repository, kind) as process:
            out = cast(IO[str], process.stdout)
            told.append(out.readline().strip())
            time.sleep(chance.random() * 0.05)
            process.kill()
            told += [line.strip() for line in out.readlines() if line.endswith("\n")]
    for number in told:
        assert git(repository.path, "cat-file", "-t", number) == "commit"
        assert git(repository.path, "ls-tree", "-r", "--name-only", number).count("src/new") == 5

    def nothing_stays() -> bool:
        repository.prune()  # a git program that the killed process had started may live a moment longer
        return _leftovers(repository) == []

    eventually(nothing_stays)
    assert fsck(repository.path) == ""


def test_a_prune_that_died_is_finished_by_the_next(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    repository.close()
    with actor("hold", repository, kind) as process:
        path = Path(cast(IO[str], process.stdout).readline().strip())
    (path.parent / "lock").unlink()
    repository.prune()
    assert _leftovers(repository) == []


def test_unfinished_objects_without_an_owner_go_when_they_are_old(repository: Repository) -> None:
    young, old = (repository.path / "objects" / f"tmp_obj_new-{name}_0" for name in ("aaaa", "bbbb"))
    young.touch()
    old.touch()
    os.utime(old, (1, 1))
    assert repository.prune().objects == 1
    assert (young.exists(), old.exists()) == (True, False)


def test_a_person_s_worktree_is_never_touched_dirty_or_gone(clone: Path, tmp_path: Path) -> None:
    git(clone, "worktree", "add", "--quiet", "-b", "mine", str(tmp_path / "linked"))
    git(clone, "worktree", "add", "--quiet", "-b", "away", str(tmp_path / "unmounted"))
    (tmp_path / "linked/README.md").write_text("work of a person\n")
    (tmp_path / "unmounted").rename(tmp_path / "elsewhere")
    (clone / ".git/worktrees/linked/index.lock").touch()
    with Repository.open(clone) as repository:
        repository.workspace("main", kind=WorkspaceKind.WORKTREE).discard()
        assert repository.prune().workspaces == ()
    assert (tmp_path / "linked/README.md").read_text() == "work of a person\n"
    assert sorted(path.name for path in (clone / ".git/worktrees").iterdir()) == ["linked", "unmounted"]


def test_a_forked_child_does_not_keep_its_parents_workspaces_alive(repository: Repository) -> None:
    """The child of a killed process continues, holding nothing of it."""
    repository.close()
    program = (
        "import os, sys, time; from pathlib import Path; from ratchet.workspaces import Repository\n"
        "repository = Repository.open(Path(sys.argv[1])); repository.workspace('best')\n"
        "child = os.fork()\n"
        "print(os.getpid(), flush=True) if not child else None\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(repository.path)], cwd=_ROOT, stdout=subprocess.PIPE, text=True
    )
    child = int(cast(IO[str], process.stdout).readline())
    process.kill()
    process.wait()
    cast(IO[str], process.stdout).close()
    try:
        assert len(repository.prune().workspaces) == 1
    finally:
        os.kill(child, 9)


def test_a_killed_process_leaves_no_git_behind(repository: Repository) -> None:
    with actor("hold", repository, WorkspaceKind.TREE) as process:
        cast(IO[str], process.stdout).readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while any(
            Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes()
            for child in children
        ):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_what_several_remove_at_once_is_gone_and_nobody_complains(tmp_path: Path) -> None:
    for number in range(20):
        leftover = tmp_path / f"leftover-{number}"
        for each in range(30):
            (leftover / f"{each}" / "deep" / "deeper").mkdir(parents=True)
            (leftover / f"{each}" / "deep" / "file").touch()
        with ThreadPoolExecutor(4) as crowd:
            for done in [crowd.submit(remove_tree, leftover) for _ in range(4)]:
                done.result()
        assert not leftover.exists()
