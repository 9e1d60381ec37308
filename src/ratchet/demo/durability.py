"""A worker is killed in the middle: another resumes from the ledger, and nothing that was finished is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.demo.stage import ActFailed, DemoCommand, DemoStage, Interrupted, Shown
from ratchet.kernel import AttemptId, Outcome, RunId, RunStatus
from ratchet.ledger import EventFilter, Run, Transaction, follow
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.programs import Process, start_program
from ratchet.research.views.markup import Markup, joined, tag
from ratchet.runtime import JobContext, Runtime, complete_run, enter_run, run_step, start_run

KIND = "demo.primes"


def start_primes(tx: Transaction, runtime: Runtime, name: str, *, blocks: int, size: int) -> RunId:
    return start_run(tx, runtime, KIND, kind="workflow", name=name, spec={"blocks": blocks, "size": size})


async def count_primes_run(job: JobContext) -> Any:
    """Count the primes below blocks × size. Started again, it resumes after the last finished block."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    size = run.spec["size"]
    total = 0
    for block in range(run.spec["blocks"]):
        work = functools.partial(_count_block, block * size, (block + 1) * size)
        total += await run_step(
            job, f"block-{block:02}", work, spec={"from": block * size, "to": (block + 1) * size}
        )
    result = {"primes": total, "below": run.spec["blocks"] * size}
    with job.write() as tx:
        complete_run(tx, job.run_id, result)
    return result


async def _count_block(low: int, high: int, _attempt: AttemptId) -> int:
    return await asyncio.to_thread(count_primes, low, high)


def count_primes(low: int, high: int) -> int:
    """How many primes there are in [low, high), by trial division: slow on purpose, to leave time to kill it."""
    return sum(1 for number in range(max(low, 2), high) if _is_prime(number))


def _is_prime(number: int) -> bool:
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 1
    return True


_SIDE, _GAP, _TOP = 34.0, 6.0, 26.0
_COLOURS = ("first", "second", "third")


@dataclass(frozen=True, slots=True)
class Block:
    """A step: who did it, how often it was tried, and how often that went well."""

    name: str
    process: str | None
    tries: int
    passed: int


def draw_blocks(blocks: Sequence[Block]) -> Markup:
    order = list(dict.fromkeys(block.process for block in blocks if block.process))
    parts = [_block(at, block, order) for at, block in enumerate(blocks)]
    width = len(blocks) * (_SIDE + _GAP) + _GAP
    svg = tag(
        "svg",
        joined(parts),
        class_="plot small",
        viewBox=f"0 0 {width:g} {_TOP + _SIDE + 8:g}",
        role="img",
        aria_label="Steps in their order, coloured by the worker process that did them",
        xmlns="http://www.w3.org/2000/svg",
    )
    keys = [(f"done by worker {place + 1}", _colour(place)) for place in range(len(order))]
    shown = [tag("span", tag("i", class_=f"key-{colour}"), words) for words, colour in keys]
    shown.append(tag("span", tag("i", class_="key-crash"), "killed here, tried again"))
    return joined([tag("div", svg, class_="wide"), tag("div", *shown, class_="legend")])


def _block(at: int, block: Block, order: Sequence[str]) -> Markup:
    x = _GAP + at * (_SIDE + _GAP)
    colour = _colour(order.index(block.process)) if block.process in order else "none"
    title = tag("title", f"{block.name}: {block.tries} tries, {block.passed} passed")
    square = tag("rect", title, x=x, y=_TOP, width=_SIDE, height=_SIDE, rx=5, class_=f"block {colour}")
    if block.tries < 2:
        return square
    middle = x + _SIDE / 2
    mark = tag("path", d=f"M{middle - 6:.1f} 8l12 12m0 -12l-12 12", class_="cross")
    return joined([square, mark])


def _colour(place: int) -> str:
    return _COLOURS[min(place, len(_COLOURS) - 1)]


BLOCKS, SIZE = 16, 12_000
_ENDED = ("run.completed", "run.failed", "run.cancelled")


@dataclass(frozen=True, slots=True)
class Summary:
    """What the ledger says about the run."""

    run: Run
    blocks: tuple[Block, ...]

    @property
    def interrupted(self) -> int:
        return sum(block.tries - 1 for block in self.blocks if block.tries)

    @property
    def done_twice(self) -> int:
        return sum(1 for block in self.blocks if block.passed > 1)

    @property
    def processes(self) -> int:
        return len({block.process for block in self.blocks if block.process})


def act(stage: DemoStage) -> Shown:
    name = stage.place.name("primes")
    begun = stage.find_run("workflow", name)
    run_id = begun.id if begun else _start(stage, name)
    stage.say(f"Run {run_id}: the primes below {BLOCKS * SIZE:,}, counted in {BLOCKS} durable steps")
    if begun is None or not begun.status.final:
        _work_through(stage, run_id)
    summary = summarise(stage, run_id)
    if summary.run.status is not RunStatus.COMPLETED or summary.done_twice:
        raise ActFailed(
            f"run {run_id} is {summary.run.status}, and {summary.done_twice} steps were done twice",
            hint=f"ratchet runs show {run_id}",
        )
    return _shown(summary)


def summarise(stage: DemoStage, run_id: int) -> Summary:
    blocks = []
    with stage.ledger.read() as tx:
        for step in list_steps(tx, run_id):
            tries = list_attempts(tx, step.id)
            passed = [each for each in tries if each.outcome is Outcome.PASSED]
            process = passed[-1].process_id if passed else None
            blocks.append(Block(step.name, process, len(tries), len(passed)))
        return Summary(get_run(tx, run_id), tuple(blocks))


def _start(stage: DemoStage, name: str) -> int:
    with stage.ledger.write(actor="demo") as tx:
        return start_primes(tx, stage.runtime, name, blocks=BLOCKS, size=SIZE)


def _work_through(stage: DemoStage, run_id: int) -> None:
    """Follow the run while a worker process does it; kill that worker once, in the middle of a step, and start another.

    Raises `ActFailed` when a worker ends that was not meant to: nobody would be left to continue.
    """
    with contextlib.ExitStack() as workers:
        ended = _Ended(stage.stop)
        worker = workers.enter_context(_worker(stage, ended))
        stage.say(f"worker {worker.pid} starts")
        done, killed = 0, False
        for event in follow(stage.ledger, 0, where=EventFilter(run_id=run_id), stop=ended):
            done += event.type == "step.completed"
            if event.type in _ENDED:
                stage.say(f"all {done} steps are done")
                return
            if event.type == "attempt.started" and not killed and done >= BLOCKS // 3:
                killed = True
                _kill(worker)
                ended.clear()
                stage.say(f"worker {worker.pid} is killed with kill -9 while step {done + 1} is under way")
                worker = workers.enter_context(_worker(stage, ended))
                stage.say(f"worker {worker.pid} starts and resumes from the ledger")
        if stage.stop.is_set():
            raise Interrupted
        raise ActFailed("the worker ended by itself", hint=f"look into {_log(stage)}")


class _Ended(threading.Event):
    """That a worker has ended, or that the whole demo is to end."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._all = stop

    def is_set(self) -> bool:
        return super().is_set() or self._all.is_set()


class _Worker(NamedTuple):
    process: Process
    watching: threading.Thread

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def _worker(stage: DemoStage, ended: threading.Event) -> Iterator[_Worker]:
    """A worker process. `ended` is set when it has ended."""
    environment = {
        **os.environ,
        "RATCHET_HOME": str(stage.loaded.home),
        "RATCHET_DATABASE_URL": stage.loaded.settings.database_url.reveal(),
    }
    _log(stage).parent.mkdir(parents=True, exist_ok=True)
    with _log(stage).open("ab") as log:
        command = [sys.executable, "-m", "ratchet.cli", "worker"]
        process = start_program(command, output=log, complaints=log, environment=environment)

    def watch() -> None:
        process.wait()
        ended.set()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield _Worker(process, watching)
    finally:
        process.terminate()
        watching.join(timeout=30)
        process.kill()
        watching.join()


def _kill(worker: _Worker) -> None:
    worker.process.kill()
    worker.watching.join()


def _log(stage: DemoStage) -> Path:
    return stage.loaded.home / "logs" / "worker.log"


def _headline(summary: Summary) -> str:
    steps = len(summary.blocks)
    if summary.interrupted:
        return (
            f"A worker was killed with kill -9 in the middle of {steps} steps; another continued, and no finished step "
            "was done twice."
        )
    # Somebody else works on this ledger too, and took the run before the one that was killed.
    return (
        f"A worker was killed with kill -9 while another process did the {steps} steps, none of them twice."
    )


def _shown(summary: Summary) -> Shown:
    run, blocks = summary.run, summary.blocks
    return Shown(
        headline=_headline(summary),
        facts={
            "primes counted": f"{run.result['primes']:,} below {run.result['below']:,}",
            "worker processes": str(summary.processes),
            "steps interrupted": str(summary.interrupted),
            "steps done twice": str(summary.done_twice),
        },
        real="All of it. Each worker was a process of its own. Each new worker knew from the ledger what was done.",
        runs=(run.id,),
        look=(
            DemoCommand(f"ratchet runs show {run.id}", "its steps, with every try"),
            DemoCommand(f"ratchet events --run {run.id}", "all that happened"),
        ),
        pictures=(draw_blocks(blocks),),
    )
