"""Candidates in directories of their own, and evaluators beside them."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.judges import Candidate, Evaluator, EvaluatorTrial, Judge, Judged, Pinned, hear
from tests.judges.scoring import Scoring

PYTHON = ("{python}", "-I", "-S")
MakeCandidate = Callable[..., Candidate]


def ask(judge: Judge, candidate: Candidate) -> Judged:
    return asyncio.run(hear(judge, candidate))


def write_files(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture
def nothing_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a candidate does, the judge's own directories are gone when it has spoken."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield
    assert list(place.iterdir()) == []


@pytest.fixture
def make_candidate(tmp_path: Path, nothing_left_behind: None) -> MakeCandidate:
    """A candidate with these files, and with whatever else is to be known of it."""

    def make(files: dict[str, str] | None = None, *, diff: str = "", **known: Any) -> Candidate:
        directory = write_files(tmp_path / "checkout", files or {"main.py": "print(1)\n"})
        known = {"author": "codex", "read_diff": lambda: diff, **known}
        return Candidate("c" * 40, "b" * 40, directory, **known)

    return make


@pytest.fixture
def make_score(tmp_path: Path) -> Callable[..., Scoring]:
    """A judge with this evaluator, which scores what `main.py` of the candidate leaves."""

    def make(
        evaluate: str, *, files: dict[str, str] | None = None, trial: Any = "main.py", **known: Any
    ) -> Scoring:
        place = write_files(tmp_path / "evaluator", {"evaluate.py": evaluate, **(files or {})})
        if isinstance(trial, str):
            trial = EvaluatorTrial(argv=(*PYTHON, trial))
        evaluator = Evaluator(pinned=Pinned(place), argv=(*PYTHON, "evaluate.py"))
        return Scoring(evaluator=evaluator, trial=trial, **known)

    return make
