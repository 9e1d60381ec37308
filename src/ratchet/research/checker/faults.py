"""Ratchet with something broken: evaluators, disk, sandbox, supervisor. Run as a program, it fills a disk."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ratchet.kernel import NotFound, TrialStatus, decoded, last_line
from ratchet.ledger import Ledger
from ratchet.ledger.research import find_research, get_standing
from ratchet.ledger.trial_pages import in_flight, latest_trials
from ratchet.programs import Process, TookTooLong, run_program, start_program
from ratchet.research.adapter import EvaluatorProgram, Program, TaskAdapter
from ratchet.research.checker.bench import (
    Bench,
    CheckPart,
    Grade,
    OnCheck,
    Stopwatch,
    TaskCheck,
    TrialEnd,
    check_of,
    new_place,
    open_bench,
)
from ratchet.research.checker.outside import ancestors, descendants, kill_process, marked_processes
from ratchet.research.tasks import read_task, scaffold
from ratchet.sandbox import Bounds
from ratchet.sandbox.inside.linux import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    mount,
    unshare,
)

_TRIALS = 24
_KILLED_AFTER = 5
# A busy machine takes long for a few trials; what has died is seen at once.
_RUN_SECONDS = 600.0
_KILL_SECONDS = 60.0
_WHAT = "the supervisor is killed, and resumed"
_EXPECTED = f"{_TRIALS} trials, none in flight, no process left"


def try_killed_supervisor(folder: Path, place: Path, url: str | None = None) -> TaskCheck:
    """`folder` is the task's; `place` is where the run has its home, and its ledger unless that is at `url`."""
    watch = Stopwatch()
    home = place / "killed"
    with Ledger.open(url or f"sqlite:///{home / 'ledger.db'}", home / "artifacts") as ledger:
        home.mkdir(parents=True, exist_ok=True)
        problems, seen = _killed_and_resumed(ledger, home, folder)
    hint = "this is a fault of Ratchet; what the run has recorded is in its ledger"
    return check_of(CheckPart.MACHINE, _WHAT, _EXPECTED, seen, problems, watch, hint=hint)


def _killed_and_resumed(ledger: Ledger, home: Path, folder: Path) -> tuple[list[str], str]:
    words = ("run", str(folder), "--name", NAME, "--engine", "search", "--trials", str(_TRIALS), "--json")
    with _started(ledger.url, home, *words) as process:
        _wait_for(lambda: process.poll() is not None or _trials(ledger) >= _KILLED_AFTER, _RUN_SECONDS)
        family = descendants(process.pid)
        process.kill()
        process.communicate()
    at_death = _trials(ledger)
    if not _wait_for(lambda: not set(family) & set(descendants(1)), _KILL_SECONDS):
        return ["processes of the killed run live on"], f"killed at trial {at_death}"
    with _started(ledger.url, home, "resume", NAME, "--json") as process:
        try:
            said, complained = process.communicate(timeout=_RUN_SECONDS)
        except TookTooLong:
            process.kill()
            return [f"the resumed run did not end in {_RUN_SECONDS:g} s"], f"killed at trial {at_death}"
    seen = f"killed at trial {at_death}, then {_trials(ledger)} trials"
    problems = _problems(ledger)
    if process.returncode != 0:
        problems.append(f"resume exited with {process.returncode}: {decoded(complained).strip()[-300:]}")
    elif json.loads(said)["trials"] != _TRIALS:
        problems.append(f"resume reported {json.loads(said)['trials']} trials")
    if not 0 < at_death < _TRIALS:
        problems.append(f"it was killed at trial {at_death}, which proves nothing")
    return problems, seen


def _problems(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        run_id = find_research(tx, NAME)
        numbers = sorted(trial.number for trial in latest_trials(tx, run_id, limit=2 * _TRIALS))
        left = in_flight(tx, run_id)
    found = [] if numbers == list(range(_TRIALS + 1)) else [f"it has the trials {numbers}"]
    return [*found, f"{len(left)} trials are in flight"] if left else found


def _trials(ledger: Ledger) -> int:
    try:
        with ledger.read() as tx:
            return get_standing(tx, find_research(tx, NAME)).trials
    except NotFound:
        return 0


def _started(url: str, home: Path, *words: str) -> Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
    environment["RATCHET_DATABASE_URL"] = url
    command = [sys.executable, "-m", "ratchet.cli", "--home", str(home), "research", *words]
    return start_program(command, cwd=home, environment=environment)


def _wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time. No event says when a process has begun or ended, so it is looked for."""
    watch = Stopwatch()
    while not condition():
        if watch.seconds > seconds:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


_INFRA: frozenset[TrialStatus | None] = frozenset({TrialStatus.INFRA_ERROR})
_TRIAL_SECONDS = 2
_WAIT_SECONDS = 20.0
_LOOK_SECONDS = 0.02


async def try_large_file(scene: Scene) -> TaskCheck:
    """Every file system is full at some point; the limit of a file is where a trial meets it first."""
    watch = Stopwatch()
    bench = scene.with_trial('dd if=/dev/zero of="$RATCHET_OUT/large" bs=65536 count=64')
    ended = await measured(bench)
    return found("a trial writes more than its limit", {TrialStatus.CRASH}, ended, [], watch)


async def try_killed_watcher(scene: Scene) -> TaskCheck:
    """Kill the process that holds a trial while it runs: nothing is known of the trial any more."""
    watch = Stopwatch()
    ended, problems = await _killed(scene, lambda holders: holders[0])
    return found("the process that watches a trial is killed", _INFRA, ended, problems, watch)


async def try_killed_parent(scene: Scene) -> TaskCheck:
    """Kill the parent of all sandboxes while a trial runs, which need not be disturbed by it."""
    watch = Stopwatch()
    ended, problems = await _killed(scene, lambda holders: holders[-1])
    return found("the parent of all sandboxes is killed", _INFRA | {None}, ended, problems, watch)


async def _killed(scene: Scene, choose: Callable[[list[int]], int]) -> tuple[TrialEnd, list[str]]:
    """How a trial ended of whose holders one was killed, and what was wrong afterwards."""
    nonce = f"rck{secrets.token_hex(6)}"
    bench = scene.with_trial(f"sleep {_TRIAL_SECONDS}; : {nonce}", seconds=10 * _TRIAL_SECONDS)
    attempt = asyncio.create_task(measured(bench))
    await _until(lambda: attempt.done() or bool(marked_processes(nonce)))
    holders = [each for pid in marked_processes(nonce)[:1] for each in ancestors(pid, os.getpid())]
    if not holders:
        return await attempt, ["it ended before anything could be killed"]
    kill_process(choose(holders))
    ended = await attempt
    problems = [] if await _until(lambda: not marked_processes(nonce)) else ["the trial lives on"]
    after = await measured(scene.bench)
    if after.status is not None:
        problems.append(f"the next measurement ended as {after.summary}")
    return ended, problems


async def try_full_disk() -> TaskCheck:
    """A disk of a few megabytes that is full, in a process that may mount one."""
    watch = Stopwatch()
    what = "the disk is full"
    with new_place() as place:
        done = await asyncio.to_thread(
            run_program,
            [sys.executable, "-m", "ratchet.research.checker.faults", str(place)],
            environment={**os.environ, "TMPDIR": f"{place}/small"},
            seconds=120,
        )
    if done.returncode != 0:
        return TaskCheck(
            part=CheckPart.MACHINE,
            what=what,
            grade=Grade.WARNING,
            detail=f"not tried: {last_line(decoded(done.stderr)) or 'no word'}",
            hint="this machine lets an ordinary user mount nothing",
            expected=TrialStatus.INFRA_ERROR,
            seconds=watch.seconds,
        )
    facts = json.loads(done.stdout)
    ended = TrialEnd(
        status=None if facts["status"] is None else TrialStatus(facts["status"]),
        score=facts["score"],
        reason=facts["reason"],
    )
    problems = (
        [] if facts["after"] is None else [f"with room again, the next trial ended as {facts['after']}"]
    )
    return found(what, _INFRA, ended, problems, watch)


def found(
    what: str, expected: Set[TrialStatus | None], ended: TrialEnd, problems: list[str], watch: Stopwatch
) -> TaskCheck:
    """`None` among what is expected stands for a score."""
    strange = [] if ended.status in expected else [f"it ended as {ended.summary}"]
    ends = " or ".join(sorted(str(each or "a score") for each in expected))
    return check_of(CheckPart.MACHINE, what, ends, ended.summary, [*strange, *problems], watch)


async def _until(condition: Callable[[], bool]) -> bool:
    return await asyncio.to_thread(_wait_for, condition, _WAIT_SECONDS)


_CRASH, _OVERRUN = TrialStatus.CRASH, TrialStatus.EVAL_BUDGET_OVERRUN
_PREPARE = "def prepare(given):\n    return {'points': [1.0]}\n\n\n"


@dataclass(frozen=True, slots=True)
class EvaluatorFault:
    """`source` is the evaluator's; NONCE in it is replaced. A status of `None` stands for a score like any other."""

    name: str
    source: str
    status: TrialStatus | None
    command: bool = False


def _function(body: str) -> str:
    return f"{_PREPARE}def score(given):\n    {body}\n"


FAULTS = (
    EvaluatorFault("answers NaN", _function("return {'error': float('nan')}"), _CRASH),
    EvaluatorFault("answers infinity", _function("return {'error': float('inf')}"), _CRASH),
    EvaluatorFault("answers text", _function("return {'error': '0.1'}"), _CRASH),
    EvaluatorFault("answers another field", _function("return {'score': 0.1}"), _CRASH),
    EvaluatorFault("answers null", _function("return None"), _CRASH),
    EvaluatorFault("crashes", _function("raise ValueError('broken')"), _CRASH),
    EvaluatorFault("hangs", _function("import time; time.sleep(3600)"), _OVERRUN),
    EvaluatorFault("floods", _function("\n    while True: print('x' * 65536)"), _CRASH),
    EvaluatorFault("takes all memory", _function("return [bytearray(2**24) for _ in iter(int, 1)]"), _CRASH),
    EvaluatorFault("prints NaN", "print('{\"error\": NaN}')\n", _CRASH, command=True),
    EvaluatorFault("prints nothing", "", _CRASH, command=True),
    EvaluatorFault(
        "prints two documents", "print('{\"error\": 1}')\nprint('{\"error\": 1}')\n", _CRASH, command=True
    ),
    EvaluatorFault(
        "prints a score and fails", "print('{\"error\": 1}')\nraise SystemExit(1)\n", _CRASH, command=True
    ),
    EvaluatorFault(
        "prints a score and hangs",
        "import time\nprint('{\"error\": 1}', flush=True)\ntime.sleep(3600)\n",
        _OVERRUN,
        command=True,
    ),
    EvaluatorFault("forks without end", "import os\nwhile True:\n    os.fork()\n", _CRASH, command=True),
    EvaluatorFault(
        "leaves processes behind",
        "import subprocess, sys\n"
        "waits = [sys.executable, '-c', 'import time; time.sleep(3600)', 'NONCE']\n"
        "gone = subprocess.DEVNULL\n"
        "subprocess.Popen(waits, start_new_session=True, stdin=gone, stdout=gone, stderr=gone)\n"
        "print('{\"error\": 1}')\n",
        None,
        command=True,
    ),
    EvaluatorFault(
        "writes outside",
        "import os, pathlib\n"
        "for place in (os.getcwd(), 'PLACE', '/usr', '/dev/shm'):\n"
        "    try:\n"
        "        pathlib.Path(place, 'NONCE').write_text('x')\n"
        "    except OSError:\n"
        "        pass\n"
        "print('{\"error\": 1}')\n",
        None,
        command=True,
    ),
    EvaluatorFault(
        "changes itself", "open(__file__, 'a').write('#')\nprint('{\"error\": 1}')\n", _CRASH, command=True
    ),
)


async def try_evaluator(scene: Scene, fault: EvaluatorFault) -> TaskCheck:
    watch = Stopwatch()
    nonce = f"rck{secrets.token_hex(6)}"
    source = fault.source.replace("NONCE", nonce).replace("PLACE", str(scene.place))
    bench = scene.with_evaluator(source, command=fault.command)
    before = _content(bench)
    ended = await measured(bench)
    problems = [] if ended.status is fault.status else [f"it ended as {ended.summary}"]
    if _content(bench) != before:
        problems.append("the evaluator's directory is not what it was")
    left = [place for place in (scene.place, Path("/usr"), Path("/dev/shm")) if (place / nonce).exists()]
    problems += [f"it wrote to {place}" for place in left]
    living = marked_processes(nonce)
    for pid in living:
        kill_process(pid)
    problems += [f"{len(living)} of its processes live on"] if living else []
    expected = str(fault.status or "a score")
    return check_of(CheckPart.EVALUATOR, fault.name, expected, ended.summary, problems, watch)


async def try_meddling(scene: Scene) -> TaskCheck:
    """The evaluator is edited while it works, after it has answered and before its answer was read."""
    watch = Stopwatch()
    bench = scene.with_evaluator(_function("return {'error': 1.0}"), kind=_Meddling)
    ended = await measured(bench)
    problems = [] if ended.status is TrialStatus.INFRA_ERROR else [f"it ended as {ended.summary}"]
    what = "is edited while it runs"
    return check_of(CheckPart.EVALUATOR, what, "infra_error", ended.summary, problems, watch)


class _Meddling(TaskAdapter):
    """A task that edits its own evaluator as soon as that has answered."""

    def classify(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        with Path(self.evaluator_dir, "score.py").open("a") as file:
            file.write("# edited\n")
        return answer


def _content(bench: Bench) -> dict[str, bytes]:
    directory = Path(bench.task.evaluator_dir)
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


NAME = "sine"
_SEED = 0
_BOUNDS = Bounds(
    wall_seconds=2.0, memory_bytes=96 * 1024**2, processes=16, output_bytes=64 * 1024, file_bytes=1024**2
)
_ONE = ("sh", "-c", "echo '{\"error\": 1}'")


@dataclass(frozen=True, slots=True)
class Scene:
    """A bench with that task. Each fault gets a copy of the task's facts, and programs of its own."""

    bench: Bench
    place: Path

    def with_evaluator(
        self, source: str, *, command: bool = False, kind: type[TaskAdapter] = TaskAdapter
    ) -> Bench:
        """The task with another evaluator. As a command it is run after a trial that does nothing."""
        directory = self.place / "evaluators" / str(len(list(self.place.glob("evaluators/*"))))
        directory.mkdir(parents=True)
        (directory / "score.py").write_text(source)
        task = kind(**{each.name: getattr(self.bench.task, each.name) for each in fields(TaskAdapter)})
        # Not in the pinned copy, which stays what it is.
        task.evaluator_dir = str(directory)
        task.evaluator = replace(task.evaluator, bounds=_BOUNDS)
        if command:
            task.evaluator = EvaluatorProgram(argv=("{python}", "-I", "-S", "score.py"), bounds=_BOUNDS)
            task.trial = Program(argv=("true",), bounds=_BOUNDS)
        return self.bench.with_task(task)

    def with_trial(self, program: str, *, seconds: float = _BOUNDS.wall_seconds) -> Bench:
        """The task with a shell's program in the place of the recipe. Whatever ends well is scored with 1."""
        task = copy.copy(self.bench.task)
        task.trial = Program(argv=("sh", "-c", program), bounds=replace(_BOUNDS, wall_seconds=seconds))
        task.evaluator = EvaluatorProgram(argv=_ONE, bounds=_BOUNDS)
        return self.bench.with_task(task)


@asynccontextmanager
async def open_scene(place: Path) -> AsyncIterator[Scene]:
    """A new one below `place`, which exists and is empty."""
    folder = scaffold(NAME, place)
    async with open_bench(read_task(folder), place) as bench:
        yield Scene(bench, place)


async def measured(bench: Bench) -> TrialEnd:
    return await bench.attempt(bench.base, seed=_SEED)


async def check_harness(report: OnCheck = lambda _finding: None) -> list[TaskCheck]:
    """What this Ratchet on this machine makes of faults."""
    found: list[TaskCheck] = []

    def add(finding: TaskCheck) -> None:
        found.append(finding)
        report(finding)

    with new_place() as place:
        async with open_scene(place) as scene, asyncio.TaskGroup() as beside:
            # It is a process of its own that mostly waits.
            killed = beside.create_task(asyncio.to_thread(try_killed_supervisor, place / NAME, place))
            for fault in FAULTS:
                add(await try_evaluator(scene, fault))
            add(await try_meddling(scene))
            add(await try_large_file(scene))
            add(await try_killed_watcher(scene))
            add(await try_killed_parent(scene))
            add(await try_full_disk())
            add(await killed)
    return found


_DISK_BYTES = 4 * 1024**2
_LEFT_BYTES = 256 * 1024
_WRITES = 'dd if=/dev/zero of="$RATCHET_OUT/answer" bs=65536 count=12'


def main(place: Path) -> None:
    small, scene = place / "small", place / "scene"
    small.mkdir()
    scene.mkdir()
    _mount(small)
    print(json.dumps(asyncio.run(_full_disk_facts(scene, small))))


def _mount(directory: Path) -> None:
    user, group = os.getuid(), os.getgid()
    if user != 0:
        unshare(CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    unshare(CLONE_NEWNS)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", str(directory), "tmpfs", MS_NOSUID, f"size={_DISK_BYTES},mode=700")


async def _full_disk_facts(place: Path, small: Path) -> dict[str, object]:
    async with open_scene(place) as scene:
        bench = scene.with_trial(_WRITES)
        filler = small / "filler"
        filler.write_bytes(bytes(_DISK_BYTES - _LEFT_BYTES))
        full = await measured(bench)
        filler.unlink()
        after = await measured(bench)
    return {
        "status": full.status,
        "score": full.score,
        "reason": full.reason,
        "after": None if after.status is None else after.summary,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
