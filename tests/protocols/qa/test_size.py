"""The gate that keeps a change small."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.kernel import Outcome, Verdict
from ratchet.protocols.qa.contract import SizeGate
from ratchet.workspaces import Repository, TreeBounds
from tests.protocols.qa.ground import Ground


def verdict(ground: Ground, commit: str, **known: Any) -> Verdict:
    given = {"most_lines": 10, **known}
    return ground.ask(SizeGate(repository=ground.repository, base=ground.base, **given), commit).verdict


def test_lines_that_came_and_lines_that_went_count(ground: Ground) -> None:
    ground.settle({"a.txt": "1\n2\n3\n"})
    said = verdict(ground, ground.change({"a.txt": "1\n2\nthree\n", "b.txt": "x\ny\n"}))
    assert said.passed
    assert (said.measurements["lines"], said.measurements["files"]) == (4.0, 2.0)


@pytest.mark.parametrize(("lines", "outcome"), [(10, Outcome.PASSED), (11, Outcome.FAILED)])
def test_the_limit_is_the_last_that_passes(ground: Ground, lines: int, outcome: Outcome) -> None:
    said = verdict(ground, ground.change({"a.txt": "x\n" * lines}))
    assert said.outcome is outcome
    assert str(lines) in said.reason


def test_empty_files_count_too(ground: Ground) -> None:
    assert not verdict(ground, ground.change({f"{number}.txt": "" for number in range(11)})).passed


@pytest.mark.parametrize("content", [b"\0\xff" * 1000, b"x" * 2000], ids=["no text", "one long line"])
def test_what_has_few_lines_counts_by_its_bytes(ground: Ground, content: bytes) -> None:
    commit = ground.change({"a.bin": content})
    said = verdict(ground, commit, most_bytes=1999)
    assert (said.outcome, said.measurements["bytes"]) == (Outcome.FAILED, 2000.0)
    assert verdict(ground, commit, most_bytes=2000).passed


def test_a_million_lines_are_refused_without_being_read(ground: Ground) -> None:
    said = verdict(ground, ground.change({"a.txt": "x\n" * 1_000_000}), most_lines=5000)
    assert (said.outcome, said.measurements["lines"]) == (Outcome.FAILED, 1_000_000.0)
    assert "bytes" not in said.measurements


def test_a_file_beyond_the_bounds_of_the_repository_fails(ground: Ground) -> None:
    commit = ground.change({"a.txt": b"x" * 100})
    with Repository.open(ground.repository.path, bounds=TreeBounds(file_bytes=50)) as narrow:
        gate = SizeGate(repository=narrow, base=ground.base, most_lines=10)
        said = ground.ask(gate, commit).verdict
    assert said.outcome is Outcome.FAILED
    assert "100 bytes" in said.reason


def test_attributes_of_the_change_do_not_hide_its_lines(ground: Ground) -> None:
    said = verdict(ground, ground.change({".gitattributes": "*.py -diff\n", "a.py": "x = 1\n" * 20}))
    assert said.measurements["lines"] == 21.0
