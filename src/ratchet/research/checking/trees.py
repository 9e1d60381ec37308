"""Candidates whose files are hostile, not their code: refused before anything runs, or when they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import Direction, TrialStatus
from ratchet.research.adapter import TaskAdapter
from ratchet.research.checking.bench import Bench
from ratchet.research.checking.hostile.attack import REFUSED
from ratchet.research.measuring.recipe import Recipe

Files = Mapping[str, bytes]
Change = Callable[[TaskAdapter, Files], Mapping[str, bytes | None] | None]
_PREFLIGHT = frozenset({TrialStatus.PREFLIGHT_CRASH})
_SIZE = frozenset({TrialStatus.SIZE_BLOCKED})
_DISQUALIFIED = frozenset({TrialStatus.DISQUALIFIED})


@dataclass(frozen=True, slots=True)
class Tree:
    """`change` makes the changed files from those of the baseline, or nothing where a task has no such files."""

    name: str
    change: Change
    ends: frozenset[TrialStatus]
    scores: bool = False


async def link_commit(bench: Bench) -> str:
    """A candidate in which the first file of the recipe is a link to the evaluator."""
    workspace = await asyncio.to_thread(bench.repository.workspace, bench.base)
    with workspace:
        await asyncio.to_thread(_link, workspace.path / _first(bench.task, workspace.path), bench.task)
        return (await asyncio.to_thread(workspace.commit, "a link")).hash


def trees(task: TaskAdapter) -> list[Tree]:
    return [
        Tree("changes a file outside of the recipe", _outside, _DISQUALIFIED),
        Tree("changes a stage file", _stage, _DISQUALIFIED),
        Tree("brings an evaluator along", _evaluator, _DISQUALIFIED),
        Tree("does not compile", _text(b"def broken(:\n"), _PREFLIGHT),
        Tree("holds bytes that are no text", _text(b"\0\xff\xfe"), _PREFLIGHT),
        Tree("makes the compiler crash", _text(b"x = " + b"-" * 100_000 + b"1"), _PREFLIGHT | _SIZE),
        Tree("removes the recipe", _removed, _PREFLIGHT),
        Tree("is larger than it may be", _large, _SIZE),
        *(_read_only(task) if task.trial is None else ()),
    ]


def _read_only(task: TaskAdapter) -> list[Tree]:
    """Of a recipe that only the evaluator reads, the files are the answer."""
    far = b"1e9" if task.direction is Direction.MAX else b"-1e9"
    contents = {
        "a number": far,
        "a score object": b'{"%s": %s, "score": %s}' % (task.score_field.encode(), far, far),
        "nothing": b"",
        "NaN": b"NaN",
    }
    ends = REFUSED | _PREFLIGHT
    return [Tree(f"is {what}", _everywhere(content), ends, scores=True) for what, content in contents.items()]


def _outside(_task: TaskAdapter, _files: Files) -> Mapping[str, bytes | None]:
    return {"sitecustomize.py": b"raise SystemExit\n"}


def _stage(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None] | None:
    recipe = Recipe(task.recipe)
    staged = [path for path in files if not recipe.covers(path)]
    return {staged[0]: b"exit 0\n"} if staged else None


def _evaluator(task: TaskAdapter, _files: Files) -> Mapping[str, bytes | None]:
    return {f"{task.evaluator_dir}/{task.evaluator.file or 'evaluate.py'}": b"print(1)\n"}


def _text(content: bytes) -> Change:
    def change(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None] | None:
        python = [path for path in files if path.endswith(".py") and Recipe(task.recipe).covers(path)]
        return {python[0]: content} if python else None

    return change


def _removed(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None]:
    return {path: None for path in files if Recipe(task.recipe[:1]).covers(path)}


def _large(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None] | None:
    if task.size_limit_bytes is None:
        return None
    sized = [path for path in files if Recipe(task.size_paths or task.recipe).covers(path)]
    editable = [path for path in sized if Recipe(task.recipe).covers(path)]
    return {path: files[path] + b"\n#" + b"x" * task.size_limit_bytes for path in editable[:1]} or None


def _everywhere(content: bytes) -> Change:
    def change(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None]:
        return {path: content for path in files if Recipe(task.recipe).covers(path)}

    return change


def _first(task: TaskAdapter, root: Path) -> str:
    path = root / task.recipe[0]
    if path.is_dir():
        path = min(each for each in path.rglob("*") if each.is_file())
    return str(path.relative_to(root))


def _link(path: Path, task: TaskAdapter) -> None:
    path.unlink()
    path.symlink_to(task.root / task.evaluator_dir)
