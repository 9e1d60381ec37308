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
from benchmarks.sample import Spread, cpu_of_children, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Stage
from ratchet.workspaces import Repository, WorkspaceKind, memory_directory

_GOAL = 5.0
_FLAT = 1.5
_SMALL = 20
_LARGE = 5000
_PER_DIRECTORY = 10
# A living process tells its CPU in ticks of 10 ms, so only many commits together can be measured.
_BLOCK = 200
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
        [
            "ms per workspace",
            "wall p50",
            "CPU",
            "git, wall",
            "git, CPU",
            "wall, to git",
            "CPU, to git",
            "files, CPU",
        ],
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
    result.notes.append(
        "the last column is what making and removing the same files takes without git; an ext4 without a journal "
        "spends more and more on it while files are being deleted"
    )
    if "in memory" not in places:
        result.notes.append("this machine has no memory directory, so all was on disk")
    return result


def _compare(
    result: Result, name: str, place: Path, files: int, counts: tuple[int, int], repeats: int
) -> None:
    directory = place / name.replace(" ", "-").replace(",", "")
    base, used = _seed(directory, files)
    ours, git, files_alone = Side(), Side(), Side()
    for _ in range(repeats):
        files_alone.add(*_measured(lambda: _files_alone(directory / "plain", files, counts[1])))
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
            Spread.of(files_alone.cpus).show(1),
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
    marks = {10: 0.0, 10 + _BLOCK: 0.0, commits - _BLOCK: 0.0}
    with Repository.open(directory / "repo.git", workspaces=directory / "workspaces") as repository:
        for number in range(commits):
            if number in marks:
                marks[number] = _cpu_with_living()
            with repository.workspace(base, kind=WorkspaceKind.TREE) as workspace:
                (workspace.path / "d0/f0").write_text(f"{number}\n")
                made = workspace.commit("next").hash
            repository.advance("refs/heads/best", made, expected=None if number == 0 else base)
            base = made
        late = (_cpu_with_living() - marks[commits - _BLOCK]) / _BLOCK * 1000
    early = (marks[10 + _BLOCK] - marks[10]) / _BLOCK * 1000
    shutil.rmtree(directory)
    result.numbers["history"] = {"commits": commits, "early": early, "late": late}
    goal = f"CPU of a workspace and an advanced ref at commit {commits:,} within {_FLAT:g}× of commit 10"
    result.goals.append(Goal(goal, f"{early:.2f} → {late:.2f} ms", late <= early * _FLAT))


def _seed(directory: Path, files: int) -> tuple[str, WorkspaceKind]:
    """A repository with one commit, and the kind of workspace that is chosen for it."""
    content = {
        f"d{number // _PER_DIRECTORY}/f{number}": b"line %d\n" % number * 50 for number in range(files)
    }
    with Repository.create(directory / "repo.git", workspaces=directory / "workspaces") as repository:
        base = repository.commit_files(content, parent=None, message="seed")
        with repository.workspace(base) as workspace:
            return base, workspace.kind


def _by_ratchet(directory: Path, base: str, kind: WorkspaceKind, count: int) -> list[float]:
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


def _files_alone(directory: Path, files: int, count: int) -> list[float]:
    """The same files made and removed without git: what the file system takes whoever asks."""
    walls = []
    for _ in range(count):
        began = time.perf_counter()
        for number in range(files):
            if number % _PER_DIRECTORY == 0:
                below = directory / f"d{number // _PER_DIRECTORY}"
                below.mkdir(parents=True)
            with (below / f"f{number}").open("wb", buffering=0) as file:
                file.write(b"line %d\n" % number * 50)
        shutil.rmtree(directory)
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


def _cpu_with_living() -> float:
    """CPU seconds of this process and of the git processes that it keeps running."""
    return _cpu() + cpu_of_children(os.getpid())


def _memory() -> Path | None:
    found = memory_directory(Path.cwd())
    return None if found is None else found.parent
