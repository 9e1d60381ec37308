"""Moving refs: only from where they are known to be, whoever else moves them."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound, StateChanged
from ratchet.workspaces import Repository, RepositoryCorrupt, RepositoryLocked
from tests.workspaces.conftest import git

BEST = "refs/heads/best"


@pytest.fixture
def better(repository: Repository, base: str) -> str:
    return repository.commit_files({"README.md": b"better\n"}, parent=base, message="better")


def test_a_ref_advances_from_where_it_is_expected(repository: Repository, base: str, better: str) -> None:
    repository.advance(BEST, better, expected=base)
    assert repository.ref(BEST) == git(repository.path, "rev-parse", "best") == better


def test_a_ref_that_moved_meanwhile_is_not_advanced(repository: Repository, base: str, better: str) -> None:
    repository.advance(BEST, better, expected=base)
    with pytest.raises(StateChanged, match="changed meanwhile") as caught:
        repository.advance(BEST, base, expected=base)
    assert (caught.value.key, caught.value.expected, caught.value.current) == (BEST, (base,), better)
    assert repository.ref(BEST) == better
    repository.advance(BEST, base, expected=better)


def test_a_ref_that_exists_is_not_created_and_an_absent_one_not_moved(
    repository: Repository, base: str, better: str
) -> None:
    with pytest.raises(StateChanged):
        repository.advance(BEST, better, expected=None)
    with pytest.raises(StateChanged, match="is absent"):
        repository.advance("refs/ratchet/new", better, expected=base)
    assert repository.ref("refs/ratchet/new") is None


def test_packed_refs_are_read_and_moved(repository: Repository, base: str, better: str) -> None:
    git(repository.path, "pack-refs", "--all")
    assert repository.ref(BEST) == base
    repository.advance(BEST, better, expected=base)
    assert repository.ref(BEST) == better


def test_a_symbolic_ref_is_followed(repository: Repository, base: str) -> None:
    git(repository.path, "symbolic-ref", "refs/ratchet/alias", BEST)
    assert repository.ref("refs/ratchet/alias") == base


@pytest.mark.parametrize(
    "name",
    [
        "best",
        "HEAD",
        "refs/heads/a..b",
        "refs/heads/a b",
        "refs/heads/x.lock",
        "refs/../x",
        "refs/heads/",
        "../x",
    ],
)
def test_what_is_no_full_name_is_misuse(repository: Repository, base: str, name: str) -> None:
    with pytest.raises(Misuse, match="full name of a ref"):
        repository.advance(name, base, expected=None)
    with pytest.raises(Misuse, match="full name of a ref"):
        repository.ref(name)


def test_a_commit_that_does_not_exist_is_not_found(repository: Repository, base: str) -> None:
    with pytest.raises(NotFound, match="2222"):
        repository.advance(BEST, "2" * 40, expected=base)


def test_a_name_below_another_ref_is_a_conflict(repository: Repository, base: str) -> None:
    with pytest.raises(Conflict, match="refs/heads/best/below"):
        repository.advance(f"{BEST}/below", base, expected=None)


def test_of_many_that_advance_at_once_one_wins(repository: Repository, base: str) -> None:
    commits = [repository.commit_files({"n": b"%d" % n}, parent=base, message="race") for n in range(8)]
    outcomes: list[str] = []

    def race(commit: str) -> None:
        with Repository.open(repository.path) as own:
            try:
                own.advance(BEST, commit, expected=base)
                outcomes.append(commit)
            except StateChanged:
                outcomes.append("lost")

    threads = [threading.Thread(target=race, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("lost") == 7
    assert repository.ref(BEST) in outcomes


@pytest.mark.soak
@pytest.mark.parametrize("lock", ["refs/heads/best.lock", "packed-refs.lock"])
def test_a_lock_that_another_process_may_hold_is_waited_for_and_then_named(
    repository: Repository, base: str, better: str, lock: str
) -> None:
    if lock == "packed-refs.lock":
        git(repository.path, "pack-refs", "--all")
    (repository.path / lock).touch()
    holder = subprocess.Popen(["sleep", "600"], cwd=repository.path)
    try:
        with pytest.raises(RepositoryLocked, match=lock) as caught:
            repository.restore({BEST: (None, base)} if lock == "packed-refs.lock" else {BEST: (better, base)})
    finally:
        holder.kill()
        holder.wait()
    assert "delete that file" in (caught.value.hint or "")
    assert repository.ref(BEST) == base
    (repository.path / lock).unlink()
    repository.advance(BEST, better, expected=base)


def test_a_lock_that_goes_away_in_time_is_no_fault(repository: Repository, base: str, better: str) -> None:
    lock = repository.path / "refs/heads/best.lock"
    lock.touch()
    timer = threading.Timer(0.4, lock.unlink)
    timer.start()
    repository.advance(BEST, better, expected=base)
    timer.join()
    assert repository.ref(BEST) == better


def test_a_lock_that_a_power_cut_left_long_ago_is_removed(
    repository: Repository, base: str, better: str
) -> None:
    lock = repository.path / "refs/heads/best.lock"
    lock.touch()
    long_ago = time.time() - 3600
    os.utime(lock, (long_ago, long_ago))
    repository.advance(BEST, better, expected=base)
    assert repository.ref(BEST) == better
    assert not lock.exists()


def test_a_ref_that_holds_garbage_is_corrupt(repository: Repository) -> None:
    (repository.path / BEST).write_text("garbage\n")
    with pytest.raises(RepositoryCorrupt, match="garbage"):
        repository.ref(BEST)


def test_a_branch_that_a_person_has_checked_out_is_left_alone(clone: Path, tmp_path: Path) -> None:
    git(clone, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "linked"))
    with Repository.open(clone) as repository:
        base = repository.resolve("main")
        made = repository.commit_files({"a": b"a"}, parent=base, message="a")
        for branch in ("main", "other"):
            with pytest.raises(Conflict, match=f"{branch} is checked out"):
                repository.advance(f"refs/heads/{branch}", made, expected=base)
    assert git(clone, "status", "--porcelain") == ""


def test_every_move_is_in_the_log_of_the_ref(repository: Repository, base: str, better: str) -> None:
    repository.advance(BEST, better, expected=base)
    assert git(repository.path, "reflog", "show", "--format=%H %gs", "best").splitlines() == [
        f"{better} ratchet",
        f"{base} ratchet",
    ]
