"""The ref of the best."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.kernel import StateChanged
from ratchet.research.campaign import BEST
from ratchet.research.trial import show_best
from ratchet.workspaces import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with Repository.create(tmp_path / "repo.git") as repository:
        yield repository


def test_two_that_are_kept_at_once_show_the_later_one(repository: Repository) -> None:
    commits = [repository.commit_files({"r": b"%d" % n}, parent=None, message=str(n)) for n in range(60)]
    repository.advance(BEST, commits[0], expected=None)
    errors: list[StateChanged] = []
    best = commits[0]

    def show() -> None:
        try:
            show_best(repository, lambda: best)
        except StateChanged as error:
            errors.append(error)

    for first, second in zip(commits[1::2], commits[2::2], strict=False):
        threads = [threading.Thread(target=show) for _ in range(2)]
        best = first
        threads[0].start()
        best = second
        threads[1].start()
        for thread in threads:
            thread.join()
        assert repository.ref(BEST) == second
    assert errors == []
