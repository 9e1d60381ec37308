"""A workspace made, committed and discarded, next to what git's own commands take for the same."""

from __future__ import annotations

import dataclasses
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Stage
from ratchet.workspaces import Kind, Repository, memory_directory

_GOAL = 5.0
_FLAT = 1.5
_SMALL = 20
_LARGE = 5000
_PER_DIRECTORY = 10
_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
}


@dataclasses.dataclass(slots=True)
class Side:
    """What one way of doing it took, in milliseconds per workspace."""

    walls: list[float] = dataclasses.field(default_factory=list)
    cpus: list[float] = dataclasses.field(default_factory=list)

    def add(self, walls: list[float], cpu: float) -> None:
        self.walls.append(percentile(walls, 0.5))
        self.cpus.append(cpu / len(walls))


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "workspaces",
        f"create, change one file, commit, discard, {scale.steps} times; CPU with opening and all git processes",
        ["ms per workspace", "wall p50", "CPU", "git, wall", "git, CPU", "wall, git to it", "CPU, git to it"],
    )
    places = {"on disk": stage.new_directory("workspaces")}
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-", dir=_memory()) as memory:
        if _memory() is not None:
            places["in memory"] = Path(memory)
        for where, place in places.items():
            small, large = f"{_SMALL} files, {where}", f"{_LARGE} files, {where}"
            _compare(result, small, place, _SMALL, (scale.steps, scale.steps), scale.repeats)
            _compare(result, large, place, _LARGE, (scale.steps, 3), scale.repeats)
        _history(result, places.get("in memory", places["on disk"]), scale.jobs * 10)
    if "in memory" not in places:
        result.notes.append("this machine has no memory directory, so all was on disk")
    return result


def _compare(
    result: Result, name: str, place: Path, files: int, counts: tuple[int, int], repeats: int
) -> None:
    directory = place / name.replace(" ", "-").replace(",", "")
    base, used = _seed(directory, files)
    ours, git = Side(), Side()
    for _ in range(repeats):
        git.add(*_measured(lambda: _by_git(directory, base, counts[1])))
        ours.add(*_measured(lambda: _by_ratchet(directory, base, used, counts[0])))
    shutil.rmtree(directory)
    wall, cpu = Spread.of(ours.walls), Spread.of(ours.cpus)
    git_wall, git_cpu = Spread.of(git.walls), Spread.of(git.cpus)
    result.rows.append(
        [
            f"{name}, kind {used}",
            wall.show(2),
            cpu.show(2),
            git_wall.show(1),
            git_cpu.show(1),
            ratio(git_wall.median, wall.median),
            ratio(git_cpu.median, cpu.median),
        ]
    )
    result.numbers[name] = {"ratchet": dataclasses.asdict(ours), "git": dataclasses.asdict(git)}
    if files == _SMALL:
        for what, times in (("wall", git_wall.median / wall.median), ("CPU", git_cpu.median / cpu.median)):
            goal = f"{name}: {what} at least {_GOAL:.0f}× below git worktree add, commit, remove"
            result.goals.append(Goal(goal, f"{times:.1f}×", times >= _GOAL))


def _history(result: Result, place: Path, commits: int) -> None:
    """Whether a workspace costs at the end of a long history what it cost at its beginning."""
    directory = place / "history"
    base, _ = _seed(directory, _SMALL)
    taken: list[float] = []
    with Repository.open(directory / "repo.git", workspaces=directory / "workspaces") as repository:
        for number in range(commits):
            began = time.process_time()
            with repository.workspace(base, kind=Kind.TREE) as workspace:
                (workspace.path / "d0/f0").write_text(f"{number}\n")
                made = workspace.commit("next").hash
            repository.advance("refs/heads/best", made, expected=None if number == 0 else base)
            base = made
            taken.append((time.process_time() - began) * 1000)
    shutil.rmtree(directory)
    early, late = percentile(taken[10:110], 0.5), percentile(taken[-100:], 0.5)
    result.numbers["history"] = {"commits": commits, "early": early, "late": late}
    goal = f"CPU of a workspace and an advanced ref at commit {commits:,} within {_FLAT:g}× of commit 10"
    result.goals.append(Goal(goal, f"{early:.2f} → {late:.2f} ms", late <= early * _FLAT))


def _seed(directory: Path, files: int) -> tuple[str, Kind]:
    """A repository with one commit, and the kind of workspace that is chosen for it."""
    content = {
        f"d{number // _PER_DIRECTORY}/f{number}": b"line %d\n" % number * 50 for number in range(files)
    }
    with Repository.create(directory / "repo.git", workspaces=directory / "workspaces") as repository:
        base = repository.commit_files(content, parent=None, message="seed")
        with repository.workspace(base) as workspace:
            return base, workspace.kind


def _by_ratchet(directory: Path, base: str, kind: Kind, count: int) -> list[float]:
    walls = []
    with Repository.open(directory / "repo.git", workspaces=directory / "workspaces") as repository:
        for number in range(count):
            began = time.perf_counter()
            with repository.workspace(base, kind=kind) as workspace:
                (workspace.path / "d0/f0").write_text(f"{number} {time.time_ns()}\n")
                workspace.commit("change")
            walls.append((time.perf_counter() - began) * 1000)
    return walls


def _by_git(directory: Path, base: str, count: int) -> list[float]:
    walls = []
    for number in range(count):
        began = time.perf_counter()
        tree = directory / "worktree"
        _git(directory / "repo.git", "worktree", "add", "--quiet", "--detach", str(tree), base)
        (tree / "d0/f0").write_text(f"{number} {time.time_ns()}\n")
        _git(tree, "add", "--all")
        _git(tree, "commit", "--quiet", "--message=change")
        _git(directory / "repo.git", "worktree", "remove", "--force", str(tree))
        walls.append((time.perf_counter() - began) * 1000)
    return walls


def _git(directory: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(directory), *words], check=True, capture_output=True, env=_ENVIRONMENT)


def _measured(act: Callable[[], list[float]]) -> tuple[list[float], float]:
    """What `act` returns, and the CPU milliseconds that this process and its ended children used for it."""
    before = _cpu()
    walls = act()
    return walls, (_cpu() - before) * 1000


def _cpu() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def _memory() -> Path | None:
    found = memory_directory(Path.cwd())
    return None if found is None else found.parent
