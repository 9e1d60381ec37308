"""A machine that fails in the middle of a measurement: files too large, a full disk, a killed sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Set

from ratchet.kernel import TrialStatus
from ratchet.research.checking import processes
from ratchet.research.checking.bench import Ended, new_place
from ratchet.research.checking.faults.scene import Scene, measured
from ratchet.research.checking.finding import Finding, Grade, Part, Stopwatch

_HINT = "this is a fault of Ratchet or of this machine: see `ratchet doctor`"
_INFRA: frozenset[TrialStatus | None] = frozenset({TrialStatus.INFRA_ERROR})
_TRIAL_SECONDS = 2
_WAIT_SECONDS = 20.0
_LOOK_SECONDS = 0.02


async def try_large_file(scene: Scene) -> Finding:
    """Every file system is full at some point; the limit of a file is where a trial meets it first."""
    watch = Stopwatch()
    bench = scene.with_trial('dd if=/dev/zero of="$RATCHET_OUT/large" bs=65536 count=64')
    ended = await measured(bench)
    return found("a trial writes more than its limit", {TrialStatus.CRASH}, ended, [], watch)


async def try_killed_watcher(scene: Scene) -> Finding:
    """Kill the process that holds a trial while it runs: nothing is known of the trial any more."""
    watch = Stopwatch()
    ended, problems = await _killed(scene, lambda holders: holders[0])
    return found("the process that watches a trial is killed", _INFRA, ended, problems, watch)


async def try_killed_parent(scene: Scene) -> Finding:
    """Kill the parent of all sandboxes while a trial runs, which need not be disturbed by it."""
    watch = Stopwatch()
    ended, problems = await _killed(scene, lambda holders: holders[-1])
    return found("the parent of all sandboxes is killed", _INFRA | {None}, ended, problems, watch)


async def _killed(scene: Scene, choose: Callable[[list[int]], int]) -> tuple[Ended, list[str]]:
    """How a trial ended of whose holders one was killed, and what was wrong afterwards."""
    nonce = f"rck{secrets.token_hex(6)}"
    bench = scene.with_trial(f"sleep {_TRIAL_SECONDS}; : {nonce}", seconds=10 * _TRIAL_SECONDS)
    attempt = asyncio.create_task(measured(bench))
    await _until(lambda: attempt.done() or bool(processes.marked(nonce)))
    holders = [each for pid in processes.marked(nonce)[:1] for each in processes.above(pid, os.getpid())]
    if not holders:
        return await attempt, ["it ended before anything could be killed"]
    processes.kill(choose(holders))
    ended = await attempt
    problems = [] if await _until(lambda: not processes.marked(nonce)) else ["the trial lives on"]
    after = await measured(scene.bench)
    if after.status is not None:
        problems.append(f"the next measurement ended as {after.told}")
    return ended, problems


async def try_full_disk() -> Finding:
    """A disk of a few megabytes that is full, in a process that may mount one."""
    watch = Stopwatch()
    what = "the disk is full"
    with new_place() as place:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "ratchet.research.checking.faults.full_disk", str(place)],
            env={**os.environ, "TMPDIR": f"{place}/small"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if done.returncode != 0:
        return Finding(
            part=Part.MACHINE,
            what=what,
            grade=Grade.WARNING,
            detail=f"not tried: {(done.stderr.strip().splitlines() or ['no word'])[-1]}",
            hint="this machine lets an ordinary user mount nothing",
            expected=TrialStatus.INFRA_ERROR,
            seconds=watch.seconds,
        )
    told = json.loads(done.stdout)
    ended = Ended(
        status=None if told["status"] is None else TrialStatus(told["status"]),
        score=told["score"],
        reason=told["reason"],
    )
    problems = [] if told["after"] is None else [f"with room again, the next trial ended as {told['after']}"]
    return found(what, _INFRA, ended, problems, watch)


def found(
    what: str,
    expected: Set[TrialStatus | None],
    ended: Ended,
    problems: list[str],
    watch: Stopwatch,
) -> Finding:
    """`None` among what is expected stands for a score."""
    strange = [] if ended.status in expected else [f"it ended as {ended.told}"]
    return Finding(
        part=Part.MACHINE,
        what=what,
        grade=Grade.FAILED if strange or problems else Grade.OK,
        detail="; ".join([*strange, *problems]) or ended.told,
        hint=_HINT if strange or problems else "",
        expected=" or ".join(sorted(str(each or "a score") for each in expected)),
        seen=ended.told,
        seconds=watch.seconds,
    )


async def _until(condition: Callable[[], bool]) -> bool:
    """Whether it came true in time. Nobody tells when a process has begun or ended, so it is looked for."""
    watch = Stopwatch()
    while not condition():
        if watch.seconds > _WAIT_SECONDS:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True
