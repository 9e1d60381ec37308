"""Looking at a task by measuring its baseline."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from ratchet.judges.comparison import spread
from ratchet.kernel import TrialStatus
from ratchet.research.adapter import Program
from ratchet.research.checking.case import Case, Seen, failed, warned
from ratchet.research.measurement import Unmeasured
from ratchet.research.measuring import TaskMeter

_MOST_REPEATS = 5
_SAME_SEED = 2
_MIB = 1024 * 1024


async def stable_hash(case: Case) -> Seen:
    """Two meters of one task, and one that has measured, must agree on what decides a score."""
    bench = case.bench
    again = TaskMeter(bench.task, bench.repository, bench.home).hash
    if again != bench.meter.hash:
        return failed(
            f"it is {bench.meter.hash[:12]} and then {again[:12]}", "let no fact of the task depend on chance"
        )
    return Seen(f"{again[:12]} over evaluator, inputs, commands and limits")


async def preflight(case: Case) -> Seen:
    await case.bench.meter.preflight(case.bench.base, case.bench.base)
    return Seen("the recipe compiles, is complete and within its size")


async def first_score(case: Case) -> Seen:
    """One score. What the evaluator refuses is told as the gate that the baseline does not pass."""
    try:
        measured = await case.bench.measure(seed=case.bench.task.keep.seed)
    except Unmeasured as unmeasured:
        return _no_score(unmeasured)
    case.samples.append(measured)
    trials, evaluator = measured.facts["trials"], measured.facts["evaluator"]
    parts = [f"trial {sum(each['wall_ms'] for each in trials):.0f} ms"] if trials else []
    parts.append(f"evaluator {evaluator['wall_ms']:.0f} ms")
    return Seen(
        f"{case.bench.task.label} {measured.score:g} in {measured.wall_ms:.0f} ms ({', '.join(parts)})"
    )


async def noise(case: Case) -> Seen:
    """How far scores scatter over seeds."""
    task = case.bench.task
    repeats = min(_MOST_REPEATS, max(task.keep.least, task.keep.baseline_repeats, 2))
    for seed in range(task.keep.seed + len(case.samples), task.keep.seed + repeats):
        case.samples.append(await case.bench.measure(seed=seed))
    mean, sd = spread(tuple(each.score for each in case.samples))
    each_ms = statistics.median(each.wall_ms for each in case.samples)
    told = f"{mean:g} ± {sd:g} over {len(case.samples)} seeds, {each_ms:.0f} ms each"
    if sd == 0 and not task.keep.deterministic and task.keep.policy == "confident":
        return warned(
            f"{told}; every promising trial will still be measured {task.keep.least} times",
            "say keep.deterministic = true if a score has no noise",
        )
    return Seen(told)


async def deterministic(case: Case) -> Seen:
    """Whether one seed always gives one score, and whether that is what the task says."""
    task, first = case.bench.task, case.samples[0]
    again = [(await case.bench.measure(seed=first.seed)).score for _ in range(_SAME_SEED)]
    if all(score == first.score for score in again):
        claim = "as the task says" if task.keep.deterministic else "which the task does not claim"
        return Seen(f"seed {first.seed} gave {first.score!r} {1 + len(again)} times, {claim}")
    scores = ", ".join(repr(score) for score in (first.score, *again))
    if task.keep.deterministic:
        return failed(
            f"it says that it is deterministic, but seed {first.seed} gave {scores}",
            "set keep.deterministic = false, or let recipe and evaluator draw all chance from the seed",
        )
    return Seen(f"a score has noise of its own: seed {first.seed} gave {scores}")


async def held_out(case: Case) -> Seen:
    task = case.bench.task
    if not task.keep.held_out:
        if task.held_out_inputs is not None:
            return warned(
                "held_out_inputs is given, but keep.held_out is not set", "say keep.held_out = true"
            )
        return Seen("none is declared")
    measured = await case.bench.measure(seed=task.keep.seed, held_out=True)
    told = f"{measured.score:g} on the held-out split, {case.samples[0].score:g} on the other"
    if measured.score == case.samples[0].score:
        return warned(
            f"{told}: both splits give the same score",
            "let prepare read held_out, or give held_out_inputs, so that it is really another split",
        )
    return Seen(told)


async def limits(case: Case) -> Seen:
    """How much of its limits the baseline uses already."""
    task, facts = case.bench.task, case.samples[0].facts
    tight = [
        said
        for who, program, ends in (
            ("trial", task.trial, facts["trials"]),
            ("evaluator", task.evaluator, [facts["evaluator"]]),
        )
        if program is not None
        for end in ends
        for said in _tight(who, program, end)
    ]
    if tight:
        return warned(
            f"the baseline uses more than half of {', '.join(dict.fromkeys(tight))}",
            "raise the limit, or a slightly slower machine will fail honest trials",
        )
    unbounded = [
        who
        for who, program in (("trial", task.trial), ("evaluator", task.evaluator))
        if _is_unbounded(program)
    ]
    if unbounded:
        return warned(f"the {' and the '.join(unbounded)} may use any amount of memory", "set memory_mb")
    return Seen("the baseline uses less than half of each")


def _no_score(unmeasured: Unmeasured) -> Seen:
    if unmeasured.status is TrialStatus.INFRA_ERROR:
        return failed(unmeasured.reason, "mend the machine; `ratchet doctor` shows what it lacks")
    if unmeasured.status is TrialStatus.DISQUALIFIED:
        return failed(
            f"the baseline does not pass its own gate: {unmeasured.reason}",
            "begin with a recipe that the evaluator accepts",
        )
    return failed(f"{unmeasured.status}: {unmeasured.reason}", "mend the recipe or the evaluator")


def _is_unbounded(program: Program | None) -> bool:
    return program is not None and program.bounds.memory_bytes is None


def _tight(who: str, program: Program, end: dict[str, Any]) -> Iterator[str]:
    bounds = program.bounds
    if end["wall_ms"] > 500 * bounds.wall_seconds:
        yield f"the {who}'s {bounds.wall_seconds:g} s ({end['wall_ms'] / 1000:.2g} s)"
    if bounds.cpu_seconds is not None and end["cpu_ms"] > 500 * bounds.cpu_seconds:
        yield f"the {who}'s {bounds.cpu_seconds:g} s of CPU time ({end['cpu_ms'] / 1000:.2g} s)"
    if bounds.memory_bytes is not None and end["peak_bytes"] > bounds.memory_bytes / 2:
        most, used = bounds.memory_bytes // _MIB, end["peak_bytes"] // _MIB
        yield f"the {who}'s {most} MB of memory ({used} MB)"
