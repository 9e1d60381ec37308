"""The attack suite: hostile recipes and hostile files, made from the task's own, and how each ended."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.kernel import Direction, RatchetError, TrialStatus
from ratchet.research.adapter import TaskAdapter
from ratchet.research.checker.bench import (
    Bench,
    CheckPart,
    Grade,
    Honesty,
    OnCheck,
    Stopwatch,
    TaskCheck,
    TrialEnd,
    check_of,
    new_place,
    open_bench,
)
from ratchet.research.checker.forgeries import REACHES, forgeries
from ratchet.research.checker.hostile import ENDS, EXHAUSTS, REFUSED, RecipeKind, TaskAttack, plant
from ratchet.research.checker.outside import Outside
from ratchet.research.measurement.checkout import RecipePaths
from ratchet.research.measurement.result import Unmeasured
from ratchet.research.tasks import initial_files
from ratchet.sandbox import close
from ratchet.workspaces import WorkspaceError

Files = Mapping[str, bytes]
Change = Callable[[TaskAdapter, Files], Mapping[str, bytes | None] | None]
_PREFLIGHT = frozenset({TrialStatus.PREFLIGHT_CRASH})
_SIZE = frozenset({TrialStatus.SIZE_BLOCKED})
_DISQUALIFIED = frozenset({TrialStatus.DISQUALIFIED})


@dataclass(frozen=True, slots=True)
class HostileTree:
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


def trees(task: TaskAdapter) -> list[HostileTree]:
    evaluator = f"{task.evaluator_dir}/{task.evaluator.file or 'evaluate.py'}"
    return [
        HostileTree(
            "changes a file outside of the recipe",
            _adds("sitecustomize.py", b"raise SystemExit\n"),
            _DISQUALIFIED,
        ),
        HostileTree("changes a stage file", _stage, _DISQUALIFIED),
        HostileTree("brings an evaluator along", _adds(evaluator, b"print(1)\n"), _DISQUALIFIED),
        HostileTree("does not compile", _text(b"def broken(:\n"), _PREFLIGHT),
        HostileTree("holds bytes that are no text", _text(b"\0\xff\xfe"), _PREFLIGHT),
        HostileTree("makes the compiler crash", _text(b"x = " + b"-" * 100_000 + b"1"), _PREFLIGHT | _SIZE),
        HostileTree("removes the recipe", _removed, _PREFLIGHT),
        HostileTree("is larger than it may be", _large, _SIZE),
        *(_read_only(task) if task.trial is None else ()),
    ]


def _read_only(task: TaskAdapter) -> list[HostileTree]:
    """Of a recipe that only the evaluator reads, the files are the answer."""
    far = b"1e9" if task.direction is Direction.MAX else b"-1e9"
    contents = {
        "a number": far,
        "a score object": b'{"%s": %s, "score": %s}' % (task.score_field.encode(), far, far),
        "nothing": b"",
        "NaN": b"NaN",
    }
    ends = REFUSED | _PREFLIGHT
    return [
        HostileTree(f"is {what}", _everywhere(content), ends, scores=True)
        for what, content in contents.items()
    ]


def _adds(path: str, content: bytes) -> Change:
    return lambda _task, _files: {path: content}


def _stage(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None] | None:
    recipe = RecipePaths(task.recipe)
    staged = [path for path in files if not recipe.covers(path)]
    return {staged[0]: b"exit 0\n"} if staged else None


def _text(content: bytes) -> Change:
    def change(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None] | None:
        python = [path for path in files if path.endswith(".py") and RecipePaths(task.recipe).covers(path)]
        return {python[0]: content} if python else None

    return change


def _removed(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None]:
    return {path: None for path in files if RecipePaths(task.recipe[:1]).covers(path)}


def _large(task: TaskAdapter, files: Files) -> Mapping[str, bytes | None] | None:
    if task.size_limit_bytes is None:
        return None
    sized = [path for path in files if RecipePaths(task.size_paths or task.recipe).covers(path)]
    editable = [path for path in sized if RecipePaths(task.recipe).covers(path)]
    return {path: files[path] + b"\n#" + b"x" * task.size_limit_bytes for path in editable[:1]} or None


def _everywhere(content: bytes) -> Change:
    return lambda task, files: {path: content for path in files if RecipePaths(task.recipe).covers(path)}


def _first(task: TaskAdapter, root: Path) -> str:
    path = root / task.recipe[0]
    if path.is_dir():
        path = min(each for each in path.rglob("*") if each.is_file())
    return str(path.relative_to(root))


def _link(path: Path, task: TaskAdapter) -> None:
    path.unlink()
    path.symlink_to(task.root / task.evaluator_dir)


_LEAST_SECONDS = 2.0
_TIMES_THE_BASELINE = 5
_MOST_MEMORY = 2 * 1024**3
_MOST_FILE = 16 * 1024**2
_TRIES = 3
# For checkouts and for a machine that has other things to do.
_SLACK_SECONDS = 10.0
_SEEN = TaskAttack(name="hostile code runs", code="leave()\n")
LINK = "is a link to the evaluator"
_MEND = (
    "let the evaluator work the score out itself, from an answer that it checks for kind, length and range, and let "
    "it execute nothing that the recipe left"
)


async def check_attacks(
    task: TaskAdapter,
    report: OnCheck = lambda _finding: None,
    *,
    real_home: Path | None = None,
    only: Collection[str] | None = None,
) -> list[TaskCheck]:
    """Try every attack that fits the task. Limits are shortened, so that what runs into them does so soon.

    `real_home` is Ratchet's own home: hostile recipes look for it too. `only` names the attacks that are wanted.
    """
    found: list[TaskCheck] = []
    with new_place() as place:
        watch = Stopwatch()
        try:
            async with open_bench(task, place) as bench:
                async for finding in _attacked(bench, real_home, only):
                    found.append(finding)
                    report(finding)
        except (RatchetError, Unmeasured) as error:
            finding = TaskCheck(
                part=CheckPart.ATTACK,
                what="the honest recipe is measured",
                grade=Grade.FAILED,
                detail=str(error),
                hint="an attack is compared with the honest recipe; fix what the other checks found first",
                seconds=watch.seconds,
            )
            found.append(finding)
            report(finding)
    return found


async def _attacked(
    bench: Bench, real_home: Path | None, only: Collection[str] | None
) -> AsyncIterator[TaskCheck]:
    seed = bench.task.keep.seed
    first = await bench.measure(seed=seed)
    bench = bench.with_task(_shortened(bench.task, [each["wall_ms"] for each in first.facts["trials"]]))
    with Outside(bench=bench, real_home=real_home).watched() as outside:
        # What the sandbox is made of must have begun with the secrets there, or they could not get into it.
        await asyncio.to_thread(close)
        honesty = Honesty(bench, seed)
        await honesty.learn()
        on_files = Assault(bench, outside, honesty, initial_files(bench.task))
        # Hostile code needs room.
        roomy = copy.copy(bench.task)
        roomy.size_limit_bytes = None
        on_code = replace(on_files, bench=bench.with_task(roomy))
        planted = await on_code.planted()
        yield planted
        for attack in _fitting(bench.task) if planted.grade is Grade.OK and bench.task.trial else ():
            if only is None or attack.name in only:
                yield await on_code.try_code(attack)
        for tree in trees(bench.task):
            if only is None or tree.name in only:
                finding = await on_files.try_tree(tree)
                if finding is not None:
                    yield finding
        if only is None or LINK in only:
            yield await on_files.try_link()


def _shortened(task: TaskAdapter, wall_ms: list[float]) -> TaskAdapter:
    """The task with limits that a hostile recipe reaches soon, and the honest one does not."""
    if task.trial is None:
        return task
    shortened, bounds = copy.copy(task), task.trial.bounds
    seconds = max(_LEAST_SECONDS, _TIMES_THE_BASELINE * max(wall_ms, default=0.0) / 1000)
    shortened.trial = replace(
        task.trial,
        bounds=replace(
            bounds,
            wall_seconds=min(bounds.wall_seconds, seconds),
            memory_bytes=min(bounds.memory_bytes or _MOST_MEMORY, _MOST_MEMORY),
            file_bytes=min(bounds.file_bytes or _MOST_FILE, _MOST_FILE),
        ),
    )
    return shortened


def _fitting(task: TaskAdapter) -> list[TaskAttack]:
    assert task.trial is not None
    here = RecipeKind.NODE if task.trial.is_node else RecipeKind.COMMAND
    every = (*forgeries(task.direction), *REACHES, *EXHAUSTS, *ENDS)
    return [each for each in every if each.where in (here, RecipeKind.BOTH)]


def _allowed_seconds(task: TaskAdapter) -> float:
    trial = 0.0 if task.trial is None else task.trial.bounds.wall_seconds
    # An evaluator may be asked twice: for the question, and for the score.
    return task.processes_per_measurement * trial + 2 * task.evaluator.bounds.wall_seconds


@dataclass(frozen=True, slots=True)
class Assault:
    """What every attack on one task needs. `files` are those of the baseline.

    `slack_seconds` is how much longer than its programs may run a measurement may take.
    """

    bench: Bench
    outside: Outside
    honesty: Honesty
    files: Mapping[str, bytes]
    slack_seconds: float = _SLACK_SECONDS

    async def planted(self) -> TaskCheck:
        """Whether hostile code can be put into this recipe at all. Without that, no attack would say anything."""
        watch = Stopwatch()
        ended, held_up = await self._attempt(await self._commit(_SEEN))
        problems = [*held_up, *await asyncio.to_thread(self.outside.problems, ended)]
        if problems:
            return self._finding(_SEEN.name, _SEEN.expected, ended, problems, watch)
        seen, grade, hint = "it runs in the trial alone", Grade.OK, ""
        if self.bench.task.trial is None:
            seen = "the recipe is only read, and the evaluator does not run it"
        elif not self.outside.ran(ended):
            seen = f"it was not seen to run ({ended.summary})"
            grade, hint = (
                Grade.WARNING,
                "only recipes in Python whose stderr reaches the trial's can be attacked",
            )
        return TaskCheck(
            part=CheckPart.ATTACK,
            what=_SEEN.name,
            grade=grade,
            detail=seen,
            hint=hint,
            expected="the recipe's code runs in the trial and nowhere else",
            seen=self.outside.plain(ended.summary),
            seconds=watch.seconds,
        )

    async def try_code(self, attack: TaskAttack) -> TaskCheck:
        watch = Stopwatch()
        commit = await self._commit(attack)
        return await self._tried(attack, commit, attack.expected, watch)

    async def try_tree(self, tree: HostileTree) -> TaskCheck | None:
        """Nothing where the task has no files of that kind."""
        watch = Stopwatch()
        changed = tree.change(self.bench.task, self.files)
        if changed is None:
            return None
        expected = " or ".join(sorted(tree.ends)) + (", or no better score" if tree.scores else "")
        return await self._tried(tree, await self.bench.commit(changed), expected, watch)

    async def try_link(self) -> TaskCheck:
        watch = Stopwatch()
        tree = HostileTree(LINK, lambda _task, _files: None, frozenset({TrialStatus.DISQUALIFIED}))
        try:
            commit = await link_commit(self.bench)
        except WorkspaceError as error:
            ended = TrialEnd(status=TrialStatus.DISQUALIFIED, reason=f"it cannot be submitted: {error}")
            return self._finding(tree.name, "disqualified", ended, [], watch)
        return await self._tried(tree, commit, "disqualified", watch)

    async def _commit(self, attack: TaskAttack) -> str:
        return await self.bench.commit(plant(self.bench.task, self.files, attack, self.outside.facts()))

    async def _tried(
        self, tried: TaskAttack | HostileTree, commit: str, expected: str, watch: Stopwatch
    ) -> TaskCheck:
        """Measure a hostile candidate, look around, and measure the honest one again."""
        ended, held_up = await self._attempt(commit)
        if ended.status is TrialStatus.TRAIN_BUDGET_OVERRUN and tried not in EXHAUSTS:
            # On a busy machine it may be cut off before it has done anything, and would then show nothing.
            ended, held_up = await self._attempt(commit)
        problems = [*held_up, *await asyncio.to_thread(self.outside.problems, ended)]
        if ended.status is not None:
            if ended.status not in tried.ends:
                problems.append(f"it ended as {ended.summary}")
        elif not tried.scores:
            problems.append(f"it got a score of {ended.score!r}")
        elif await self._is_better(ended, commit):
            problems.append(f"it scored {ended.score!r}; the honest recipe has {self.honesty.scores[-1]!r}")
        changed = await self.honesty.still_holds()
        return self._finding(
            tried.name, expected, ended, problems if changed is None else [*problems, changed], watch
        )

    async def _attempt(self, commit: str) -> tuple[TrialEnd, list[str]]:
        """How it ended; and whether it held Ratchet up beyond the limits of what was run."""
        await asyncio.to_thread(self.outside.remember)
        watch = Stopwatch()
        ended = await self.bench.attempt(commit, seed=self.honesty.seed)
        late = watch.seconds > _allowed_seconds(self.bench.task) + self.slack_seconds
        return ended, [f"it held Ratchet up for {watch.seconds:.0f} s"] if late else []

    async def _is_better(self, ended: TrialEnd, commit: str) -> bool:
        """Chance makes one score better than all before it, but not every time."""
        for _ in range(_TRIES):
            if ended.status is not None or ended.score is None or not self.honesty.is_beaten_by(ended.score):
                return False
            await self.honesty.again()
            ended = await self.bench.attempt(commit, seed=self.honesty.seed)
        return True

    def _finding(
        self, name: str, expected: str, ended: TrialEnd, problems: list[str], watch: Stopwatch
    ) -> TaskCheck:
        seen, *shown = map(self.outside.plain, (ended.summary, *problems))
        return check_of(CheckPart.ATTACK, name, expected, seen, shown, watch, hint=_MEND)
