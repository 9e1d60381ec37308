"""Commits and refs that rows of the ledger tell of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.ledger import Ledger
from ratchet.workspaces import Repository
from tests.workspaces.conftest import git


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "artifacts")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was put on disk, in order."""
    files: list[Path] = []
    really = os.fsync

    def wait(descriptor: int) -> None:
        files.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        really(descriptor)

    monkeypatch.setattr(os, "fsync", wait)
    return files


def commit(repository: Repository, base: str, text: str) -> str:
    with repository.workspace(base) as workspace:
        (workspace.path / "new.txt").write_text(text)
        return workspace.commit(text).hash


def test_a_commit_is_on_disk_with_the_names_of_its_objects_when_it_returns(
    repository: Repository, base: str, waits: list[Path]
) -> None:
    made = commit(repository, base, "soon")
    objects = repository.path / "objects"
    wanted = {made, git(repository.path, "rev-parse", f"{made}^{{tree}}")}
    wanted.add(git(repository.path, "rev-parse", f"{made}:new.txt"))
    assert len([each for each in waits if each.name.startswith("tmp_obj_")]) == len(wanted)
    assert {objects / number[:2] for number in wanted} <= set(waits)


def test_objects_that_somebody_else_has_just_named_are_put_on_disk_as_well(
    repository: Repository, base: str, waits: list[Path], tmp_path: Path
) -> None:
    source = tmp_path / "same.txt"
    source.write_text("same")
    # Git itself does not wait for its objects.
    number = git(repository.path, "hash-object", "-w", str(source))
    commit(repository, base, "same")
    file = repository.path / "objects" / number[:2] / number[2:]
    assert {file, file.parent} <= set(waits)


def test_a_ref_that_moves_is_on_disk_when_it_has(
    repository: Repository, base: str, waits: list[Path]
) -> None:
    made = commit(repository, base, "moved")
    waits.clear()
    repository.advance("refs/heads/deep/er", made, expected=None)
    refs = repository.path / "refs"
    assert {refs / "heads" / "deep", refs / "heads", refs} <= set(waits)


def test_a_ref_of_a_transaction_is_there_when_that_ends(
    repository: Repository, base: str, ledger: Ledger
) -> None:
    made = commit(repository, base, "soon")
    with ledger.write() as tx:
        tx.add_file(repository.ref_file("refs/trials/001", made))
        assert repository.ref("refs/trials/001") is None
    assert git(repository.path, "show", "refs/trials/001:new.txt") == "soon"
    assert repository.ref("refs/trials/001") == made
    assert git(repository.path, "fsck", "--strict") == ""


def test_a_ref_names_what_the_transaction_says_whatever_one_that_failed_has_left(
    repository: Repository, base: str, ledger: Ledger
) -> None:
    def name(text: str, *, fails: bool) -> None:
        made = commit(repository, base, text)
        with ledger.write() as tx:
            tx.add_file(repository.ref_file("refs/trials/001", made))
            if fails:
                tx.flush()
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        name("first", fails=True)
    assert git(repository.path, "show", "refs/trials/001:new.txt") == "first"
    name("second", fails=False)
    assert git(repository.path, "show", "refs/trials/001:new.txt") == "second"


def test_a_transaction_that_fails_before_leaves_no_ref(
    repository: Repository, base: str, ledger: Ledger
) -> None:
    def name() -> None:
        with ledger.write() as tx:
            tx.add_file(repository.ref_file("refs/trials/001", base))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        name()
    assert repository.ref("refs/trials/001") is None
    assert not list(repository.path.glob("objects/tmp_obj_*"))


@pytest.mark.parametrize("name", ["refs/heads/main", "refs/tags/v1", "refs/ratchet/attempts/1", "trials/1"])
def test_refs_that_are_guarded_are_not_made_so(repository: Repository, base: str, name: str) -> None:
    with pytest.raises(Misuse):
        repository.ref_file(name, base)
