"""Tasks in folders of their own, with a repository and a meter."""

from __future__ import annotations

import asyncio
import os
import sysconfig
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import EvaluatorProgram, Program, TaskAdapter
from ratchet.research.measurement import TaskMeter
from ratchet.research.measurement.checkout import CANDIDATE_BOUNDS
from ratchet.research.measurement.result import Measurement, Unmeasured
from ratchet.research.tasks import initial_files
from ratchet.sandbox import Bounds
from ratchet.workspaces import Repository

PYTHON = ("{python}", "-I", "-S")
BOUNDS = Bounds(wall_seconds=20, memory_bytes=256 * 2**20)
NODE = Program(file="recipe.py", function="solve", bounds=BOUNDS)
COMMAND = Program(argv=(*PYTHON, "recipe.py", "{inputs}", "{out}", "{seed}"), bounds=BOUNDS)
SOLVE = "def solve(asked):\n    return 1.5\n"
PRINT = "print(1.5)\n"
SCORE_ANSWER = "def score(asked):\n    return {'score': asked['trial']['answer']}\n"
SCORE_STDOUT = "def score(asked):\n    return {'score': float(open(asked['trial']['stdout']).read())}\n"


@dataclass
class Bench:
    """A task with its first commit. `change` makes another, `measure` and `preflight` ask the meter."""

    task: TaskAdapter
    repository: Repository
    meter: TaskMeter
    base: str

    def change(self, **files: str | None) -> str:
        """A commit with these files; `recipe` stands for recipe.py, and two underscores for a slash."""
        named = {f"{name.replace('__', '/')}.py": text for name, text in files.items()}
        content = {name: None if text is None else dedent(text).encode() for name, text in named.items()}
        return self.repository.commit_files(content, parent=self.base, message="change")

    def measure(self, commit: str | None = None, *, seed: int = 0, held_out: bool = False) -> Measurement:
        return asyncio.run(self.meter.measure(commit or self.base, seed=seed, held_out=held_out))

    def fail(self, commit: str | None = None, **wanted: Any) -> Unmeasured:
        with pytest.raises(Unmeasured) as failed:
            self.measure(commit, **wanted)
        return failed.value

    def refuse(self, commit: str, base: str | None = None) -> Unmeasured:
        with pytest.raises(Unmeasured) as refused:
            asyncio.run(self.meter.preflight(commit, base or self.base))
        return refused.value

    def accept(self, commit: str) -> None:
        asyncio.run(self.meter.preflight(commit, self.base))


MakeBench = Callable[..., Bench]


def dedent(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return root


@pytest.fixture
def make_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeBench]:
    """A bench for a recipe and an evaluator; whatever was measured on it, no directory is left behind."""
    made: list[Bench] = []
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    def make(
        recipe: str = SOLVE,
        evaluate: str = SCORE_ANSWER,
        *,
        trial: Program | None = NODE,
        evaluator: EvaluatorProgram | None = None,
        files: dict[str, str] | None = None,
        root: Path | None = None,
        kind: type[TaskAdapter] = TaskAdapter,
        origin: Path | None = None,
        recipe_paths: tuple[str, ...] = ("recipe.py",),
        **facts: Any,
    ) -> Bench:
        root = write(
            root or tmp_path / f"task-{len(made)}",
            {"recipe.py": recipe, "evaluator/evaluate.py": evaluate, **(files or {})},
        )
        task = kind(
            **{
                "name": "bench",
                "root": root,
                "recipe": recipe_paths,
                "trial": trial,
                "evaluator": evaluator or scored_by(),
                **facts,
            }
        )
        repository = Repository.create(tmp_path / f"repo-{len(made)}.git", bounds=CANDIDATE_BOUNDS)
        base = repository.commit_files(dict(initial_files(task)), parent=None, message="baseline")
        meter = TaskMeter(task, repository, home=tmp_path / "home", origin=origin)
        made.append(Bench(task, repository, meter, base))
        return made[-1]

    yield make
    for bench in made:
        left = list(bench.repository.workspaces.glob("*/measured-*"))
        bench.repository.close()
        assert left == []
    assert list(temporary.iterdir()) == []


@pytest.fixture
def in_packages() -> Iterator[Path]:
    """A directory where packages are installed, which everything that is sandboxed can read."""
    with tempfile.TemporaryDirectory(prefix="ratchet-test-", dir=sysconfig.get_paths()["purelib"]) as place:
        yield Path(place)


def scored_by(**known: Any) -> EvaluatorProgram:
    """An evaluator that is a function, unless it is told otherwise."""
    if "argv" not in known:
        known = {"file": "evaluate.py", "function": "score", **known}
    return EvaluatorProgram(**{"bounds": BOUNDS, **known})


def living(marker: str) -> list[str]:
    """The processes on this machine that have `marker` among their arguments."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes() if place.name.isdigit() else b""
        except OSError:
            continue
        if marker.encode() in words and place.name != str(os.getpid()):
            found.append(place.name)
    return found


def ended(unmeasured: Unmeasured) -> tuple[TrialStatus, str]:
    return unmeasured.status, unmeasured.reason
