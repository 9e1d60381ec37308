"""Commits and refs that appear when a transaction of the ledger ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.disk import Unsettled
from ratchet.workspaces import Repository
from tests.workspaces.conftest import git

SELDOM = 8


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "artifacts")


def commit(repository: Repository, base: str, text: str, unsettled: Unsettled) -> str:
    with repository.workspace(base) as workspace:
        (workspace.path / "new.txt").write_text(text)
        return workspace.commit(text, unsettled=unsettled).hash


def fail(tx: Transaction, unsettled: Unsettled) -> None:
    tx.unsettled.join(unsettled)
    raise ZeroDivisionError


def missing(repository: Repository, number: str) -> bool:
    return git(repository.path, "cat-file", "-t", number, check=False) == ""


@pytest.mark.parametrize("often", [False, True])
def test_a_commit_and_its_ref_are_in_the_repository_when_the_transaction_ends(
    repository: Repository, base: str, ledger: Ledger, often: bool
) -> None:
    if often:
        for number in range(SELDOM):
            with ledger.write() as tx:
                ledger.artifacts.put(tx, b"%d" % number, name="it")
    unsettled = Unsettled()
    made = commit(repository, base, "soon", unsettled)
    assert missing(repository, made)
    assert repository.read_file(made, "new.txt") == b"soon"
    with ledger.write() as tx:
        tx.unsettled.join(unsettled)
        tx.unsettled.add(repository.ref_file("refs/trials/001", made))
    assert git(repository.path, "show", "refs/trials/001:new.txt") == "soon"
    assert repository.ref("refs/trials/001") == made
    assert git(repository.path, "fsck", "--strict") == ""


def test_nothing_of_a_commit_is_left_when_the_transaction_fails(
    repository: Repository, base: str, ledger: Ledger
) -> None:
    unsettled = Unsettled()
    made = commit(repository, base, "never", unsettled)
    with pytest.raises(ZeroDivisionError), ledger.write() as tx:
        fail(tx, unsettled)
    assert missing(repository, made)
    assert not list(repository.path.glob("objects/tmp_obj_*"))


def test_two_that_make_the_same_objects_do_not_rely_on_each_other(
    repository: Repository, base: str, ledger: Ledger
) -> None:
    ours, theirs = Unsettled(), Unsettled()
    commit(repository, base, "same", theirs)
    made = commit(repository, base, "same", ours)
    with ledger.write() as tx:
        tx.unsettled.join(ours)
    assert git(repository.path, "show", f"{made}:new.txt") == "same"


def test_a_large_file_is_in_the_repository_at_once(repository: Repository, base: str, ledger: Ledger) -> None:
    unsettled = Unsettled()
    made = commit(repository, base, "x" * 100_000, unsettled)
    with ledger.write() as tx:
        tx.unsettled.join(unsettled)
    assert len(git(repository.path, "show", f"{made}:new.txt")) == 100_000


def test_a_ref_names_what_the_transaction_says_whatever_one_that_failed_has_left(
    repository: Repository, base: str, ledger: Ledger
) -> None:
    def name(text: str, *, fails: bool) -> None:
        unsettled = Unsettled()
        made = commit(repository, base, text, unsettled)
        with ledger.write() as tx:
            tx.unsettled.join(unsettled)
            tx.unsettled.add(repository.ref_file("refs/trials/001", made))
            if fails:
                tx.flush()
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        name("first", fails=True)
    assert git(repository.path, "show", "refs/trials/001:new.txt") == "first"
    name("second", fails=False)
    assert git(repository.path, "show", "refs/trials/001:new.txt") == "second"


@pytest.mark.parametrize("name", ["refs/heads/main", "refs/tags/v1", "refs/ratchet/attempts/1", "trials/1"])
def test_refs_that_are_guarded_are_not_made_so(repository: Repository, base: str, name: str) -> None:
    with pytest.raises(Misuse):
        repository.ref_file(name, base)
