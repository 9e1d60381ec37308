"""How good the best is after so many model calls, next to others that are asked by the same stochastic model.

Every side is given the same five programs, the same evaluation and the same distribution of answers, and as many calls.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.install import install
from benchmarks.peers.mutator import open_mutator
from benchmarks.peers.openevolve import OPENEVOLVE
from benchmarks.peers.peer import Peer, Unavailable, Wanted
from benchmarks.peers.problems import PROBLEMS, Problem
from benchmarks.peers.run import start, stop
from benchmarks.peers.shinka import SHINKA
from benchmarks.result import Goal, Result
from benchmarks.scale import Scale
from benchmarks.stage import Stage
from ratchet.config import load_settings
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.research.jobs import KIND
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.supervisor import research_run
from ratchet.research.views._status import Band
from ratchet.runtime import JobContext, Kinds, Worker, open_ledger, open_runtime

# The plain baseline is always among them.
_STRATEGIES = ("adaptive", "best_of_n")
_OWN = "adaptive"
# In which a peer ends what it evaluates when its last call was answered.
_LAST_SECONDS = 5.0
_PARALLEL = 2
_RUN_SECONDS = 1800.0
_TASK = """[task]
name = "{name}"
description = "Answer with the genes of a table. More is better."
recipe = ["recipe.py"]
[trial]
function = "run"
file = "recipe.py"
seconds = 10.0
[evaluator]
directory = "evaluator"
function = "score"
file = "evaluate.py"
seconds = 20.0
[keep]
deterministic = true
[sessions]
trials = 1
[slots]
count = {parallel}
"""
_SPECIALIST = '[[specialist]]\nname = "s{number}"\n'
_EVALUATE = '\n\ndef score(given):\n    return {"score": measure(given["trial"]["answer"])}\n'
_MODEL = """[llm.roles.mutator]
only = "local/mutator"
[llm.endpoints.local]
kind = "openai"
base_url = "{url}"
"""

Best = Callable[[Stage, Problem, int, int], float]


def measure(stage: Stage, scale: Scale) -> Result:
    seeds, calls = scale.strategy_seeds, scale.strategy_calls
    result = Result(
        "strategies",
        f"the best after {calls} model calls, the median of {seeds} seeds and where eight of ten are; more is better",
        ["", *(problem.title for problem in PROBLEMS)],
    )
    sides: dict[str, Best] = {f"Ratchet, {name}": partial(_ratchet, name) for name in _STRATEGIES}
    if stage.peers:
        sides |= {peer.title: partial(_peer, peer) for peer in (OPENEVOLVE, SHINKA)}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in sides}
    missing: dict[str, str] = {}
    done = EndedRuns(scale.strategy_runs)
    # In turns, so that a noisy moment hits all of them.
    for seed in range(seeds):
        for problem in PROBLEMS:
            for name, best in sides.items():
                if name in missing:
                    continue
                try:
                    value = done.best_of(name, problem, seed, calls, partial(best, stage))
                except Unavailable as why:
                    missing[name] = str(why)
                else:
                    print(f"{problem.name}, seed {seed}: {name} {value:.5f}", file=sys.stderr, flush=True)
                    found[name].setdefault(problem.name, []).append(value)
    for name in sides:
        result.rows.append([name, *(_cell(found[name].get(problem.name, [])) for problem in PROBLEMS)])
    result.numbers = {"bests": found, "missing": missing}
    result.notes += [f"{name} was not run to the end: {why}" for name, why in missing.items()]
    result.notes += [
        f"{_PARALLEL} evaluations at a time; a tenth of the answers is no edit, and every call counts, also one that"
        " asks again for such an answer",
        "circles: sum of radii that a simple rule gives to centres; Heilbronn: share of the triangle; bins: the"
        " negative excess over the least possible; sort: the negative thousands of steps of a shell sort",
    ]
    result.goals += _goals(found, [each for each in sides if not each.startswith("Ratchet")])
    return result


class EndedRuns:
    """What the runs came to that have ended, in a file of lines if there is one: all of them take hours."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self._bests: dict[tuple[str, str, int, int], float] = {}
        for side, problem, seed, calls, best in map(json.loads, lines):
            self._bests[side, problem, seed, calls] = best

    def best_of(
        self, side: str, problem: Problem, seed: int, calls: int, best: Callable[[Problem, int, int], float]
    ) -> float:
        key = (side, problem.name, seed, calls)
        if key not in self._bests:
            self._bests[key] = best(problem, seed, calls)
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps([*key, self._bests[key]]) + "\n")
        return self._bests[key]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    band = Band.of(values)
    return f"{band.median:.4f} ({band.low:.4f}–{band.high:.4f})"


def _goals(found: dict[str, dict[str, list[float]]], peers: Sequence[str]) -> list[Goal]:
    """Ahead of each on at least four of the problems, behind on none: by medians, one strategy for all problems."""
    goals = []
    own = found[f"Ratchet, {_OWN}"]
    for peer in peers:
        both = [name for name in own if len(found[peer].get(name, [])) == len(own[name])]
        if not both:
            continue
        gains = [statistics.median(own[name]) - statistics.median(found[peer][name]) for name in both]
        ahead, behind = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        text = f"{_OWN} ahead of {peer} on at least four problems, behind on none"
        goals.append(
            Goal(text, f"ahead on {ahead}, behind on {behind} of {len(both)}", ahead >= 4 and not behind)
        )
    return goals


def _ratchet(strategy: str, stage: Stage, problem: Problem, seed: int, calls: int) -> float:
    home = stage.new_directory("home")
    task = _write_task(home / problem.name, problem)
    with open_mutator(problem, seed, calls, ends=True) as (mutator, url):
        (home / "ratchet.toml").write_text(_MODEL.format(url=url))
        flags = {
            "home": str(home),
            "research.stagger_seconds": 0.0,
            "research.backoff_seconds": 0.01,
            "research.backoff_cap_seconds": 0.01,
            "research.session_failures": 1_000,
        }
        loaded = load_settings(flags, env={})
        kinds = Kinds()

        async def carry(job: JobContext) -> Any:
            return await research_run(job)

        kinds.add(KIND, carry)
        with open_ledger(loaded) as ledger:
            runtime = open_runtime(loaded, ledger, kinds)
            worker = Worker(runtime)
            worker.start()
            try:
                wanted = ResearchRequest(
                    task=str(task),
                    engine="llm:mutator",
                    strategy=strategy,
                    seed=seed,
                    trials=calls,
                    parallel=_PARALLEL,
                )
                run_id = start_research(runtime, wanted)
                until = time.monotonic() + _RUN_SECONDS
                while True:
                    with ledger.read() as tx:
                        run, standing = get_run(tx, run_id), get_standing(tx, run_id)
                    if run.status.stands:
                        break
                    if time.monotonic() > until:
                        raise Unavailable(f"not done after {_RUN_SECONDS:.0f} s")
                    time.sleep(0.05)
            finally:
                worker.stop(drain_seconds=0)
    # It is blocked when the model refuses further calls, and completed when all trials were made before that.
    if standing.best_score is None or mutator.calls < 0.9 * calls:
        raise Unavailable(f"ended after {mutator.calls} calls: {run.status}, {run.reason}")
    return standing.best_score


def _write_task(folder: Path, problem: Problem) -> Path:
    (folder / "evaluator").mkdir(parents=True)
    roster = "".join(_SPECIALIST.format(number=number) for number in range(_PARALLEL))
    (folder / "task.toml").write_text(_TASK.format(name=problem.name, parallel=_PARALLEL) + roster)
    (folder / "recipe.py").write_text(problem.program)
    (folder / "evaluator" / "evaluate.py").write_text(problem.measure + _EVALUATE)
    return folder


def _peer(peer: Peer, stage: Stage, problem: Problem, seed: int, calls: int) -> float:
    programs = install(peer.name, peer.requirement)
    directory = stage.new_directory(peer.name)
    tally = directory / "tally"
    with open_mutator(problem, seed, calls, ends=False) as (mutator, url):
        wanted = Wanted(directory, url, calls, tally, problem.program, problem.scoring(str(tally)), seed)
        program, *words = peer.prepare(wanted)
        process = start([str(programs / program), *words], directory)
        until = time.monotonic() + _RUN_SECONDS
        try:
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.2)
                if mutator.refused:
                    # What comes after the last call is no search any more.
                    until = min(until, time.monotonic() + _LAST_SECONDS)
        finally:
            stop(process)
    scores = [float(line) for line in tally.read_text().split()] if tally.exists() else []
    if mutator.calls < 0.9 * calls or not scores:
        raise Unavailable(f"ended after {mutator.calls} calls and {len(scores)} programs")
    return max(scores)
