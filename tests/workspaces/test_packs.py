"""What a commit changed, packed in one repository and taken by another."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ratchet.workspaces import Repository
from ratchet.workspaces.errors import RepositoryError
from tests.workspaces.conftest import git

TEXT = "".join(f"line {number}\n" for number in range(3000))


def commits(repository: Repository, number: int) -> list[str]:
    """A line of commits, each with a large file that changes a little."""
    made: list[str] = []
    for each in range(number):
        files = {"large.txt": f"{TEXT}{each}\n".encode(), f"deep/{each}": b"new"}
        made.append(
            repository.commit_files(files, parent=made[-1] if made else None, message=str(each), at=each)
        )
    return made


def test_packs_of_what_each_commit_changed_make_the_same_history_elsewhere(tmp_path: Path) -> None:
    with Repository.create(tmp_path / "one.git") as one, Repository.create(tmp_path / "two.git") as two:
        made = commits(one, 12)
        known = [[], *([each] for each in made)]
        packs = [one.pack(commit, known=before) for commit, before in zip(made, known, strict=False)]
        assert max(map(len, packs[1:])) < 1500
        random.Random(1).shuffle(packs)
        two.unpack(packs)
        two.put_refs({f"refs/trials/exp{number}": commit for number, commit in enumerate(made)})
        assert two.refs("refs/trials/")["refs/trials/exp11"] == made[-1]
        assert [entry.hash for entry in two.log(made[-1])] == made[::-1]
        assert two.read_file(made[5], "large.txt") == one.read_file(made[5], "large.txt")


def test_packs_that_overlap_and_what_is_here_already_do_no_harm(tmp_path: Path) -> None:
    with Repository.create(tmp_path / "one.git") as one, Repository.create(tmp_path / "two.git") as two:
        made = commits(one, 3)
        two.unpack([one.pack(made[1])])
        two.unpack([one.pack(made[1]), one.pack(made[2]), one.pack(made[2], known=[made[1]])])
        two.unpack([])
        two.put_refs({"refs/heads/best": made[2]})
        assert [entry.hash for entry in two.log("refs/heads/best")] == made[::-1]
        assert git(two.path, "fsck", "--strict") == ""


def test_a_damaged_pack_is_refused(tmp_path: Path) -> None:
    with Repository.create(tmp_path / "one.git") as one, Repository.create(tmp_path / "two.git") as two:
        [commit] = commits(one, 1)
        pack = bytearray(one.pack(commit))
        pack[len(pack) // 2] ^= 0xFF
        with pytest.raises(RepositoryError):
            two.unpack([bytes(pack)])
        # What came of it is in nobody's way.
        two.unpack([one.pack(commit)])
        two.put_refs({"refs/heads/best": commit})
        assert two.read_file("refs/heads/best", "large.txt") == one.read_file(commit, "large.txt")
