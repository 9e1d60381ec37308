"""The demo itself: start a run, kill its worker in the middle, start another, and show that nothing was done twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from ratchet.config import Loaded
from ratchet.demo import primes
from ratchet.kernel import Outcome, RatchetError, RunId, RunStatus, StepStatus
from ratchet.ledger import Filter, Ledger, Run, follow
from ratchet.ledger.runs import get_run, list_attempts, list_runs, list_steps
from ratchet.runtime import open_ledger, open_runtime

BLOCKS = 24
BLOCK_SIZE = 25_000


@dataclass(frozen=True, slots=True)
class Summary:
    """What the ledger says about the finished run."""

    run: Run
    completed_steps: int
    attempts: int
    interrupted: int
    done_twice: int
    processes: int


def run_demo(
    loaded: Loaded, *, out: TextIO = sys.stdout, blocks: int = BLOCKS, size: int = BLOCK_SIZE
) -> int:
    """Run the demo to its end; an unfinished one from an earlier call is taken up where it stopped."""
    with open_ledger(loaded) as ledger:
        run_id, resumed = _start_or_resume(loaded, ledger, blocks, size)
        if resumed:
            print(f"Taking up run {run_id}, which an earlier demo left unfinished.", file=out)
        else:
            print(
                f"Run {run_id}: counting the primes below {blocks * size:,}, in {blocks} durable steps.",
                file=out,
            )
        _work_through(loaded, ledger, run_id, out, kill_after=None if resumed else blocks // 3)
        summary = summarise(ledger, run_id)
    _tell(summary, out)
    return 0 if summary.run.status is RunStatus.COMPLETED and not summary.done_twice else 1


def summarise(ledger: Ledger, run_id: int) -> Summary:
    with ledger.read() as tx:
        steps = list_steps(tx, run_id)
        tries = [list_attempts(tx, step.id) for step in steps]
        passed = [sum(1 for attempt in each if attempt.outcome is Outcome.PASSED) for each in tries]
        return Summary(
            run=get_run(tx, run_id),
            completed_steps=sum(1 for step in steps if step.status is StepStatus.COMPLETED),
            attempts=sum(map(len, tries)),
            interrupted=sum(map(len, tries)) - sum(passed),
            done_twice=sum(1 for count in passed if count > 1),
            processes=len({attempt.process_id for each in tries for attempt in each}),
        )


def _start_or_resume(loaded: Loaded, ledger: Ledger, blocks: int, size: int) -> tuple[RunId, bool]:
    with ledger.read() as tx:
        earlier = list_runs(tx, name=primes.RUN_NAME, limit=1)
    if earlier and not earlier[0].status.final:
        return earlier[0].id, True
    runtime = open_runtime(loaded, ledger)
    with ledger.write(actor="demo") as tx:
        run_id = primes.start(tx, runtime, blocks=blocks, size=size)
    runtime.close()
    return run_id, False


def _work_through(
    loaded: Loaded, ledger: Ledger, run_id: int, out: TextIO, *, kill_after: int | None
) -> None:
    """Follow the run while a worker process does it; kill that worker once, in the middle of a step, and start another.

    Raises when a worker ends that was not meant to: nobody would be left to go on.
    """
    with contextlib.ExitStack() as workers:
        ended = threading.Event()
        worker = workers.enter_context(_worker(loaded, ended))
        print(f"Worker {worker.pid} starts.", file=out)
        done = 0
        for event in follow(ledger, 0, where=Filter(run_id=run_id), stop=ended):
            if event.type == "step.completed":
                done += 1
                print(f"  {event.data['name']} completed ({done})", file=out, flush=True)
            if event.type in ("run.completed", "run.failed", "run.cancelled"):
                return
            if event.type == "attempt.started" and kill_after is not None and done >= kill_after:
                kill_after = None
                _kill(worker)
                ended.clear()
                print(f"Worker {worker.pid} is killed with kill -9.", file=out)
                worker = workers.enter_context(_worker(loaded, ended))
                print(f"Worker {worker.pid} starts and goes on from the ledger.", file=out, flush=True)
        raise RatchetError(
            "the worker ended by itself", hint=f"look into {loaded.home / 'logs' / 'worker.log'}"
        )


def _kill(worker: _Worker) -> None:
    worker.process.send_signal(signal.SIGKILL)
    worker.watching.join()


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    watching: threading.Thread

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def _worker(loaded: Loaded, ended: threading.Event) -> Iterator[_Worker]:
    """A worker process. `ended` is set when it has ended."""
    environment = {
        **os.environ,
        "RATCHET_HOME": str(loaded.home),
        "RATCHET_DATABASE_URL": loaded.settings.database_url.reveal(),
    }
    (loaded.home / "logs").mkdir(parents=True, exist_ok=True)
    with (loaded.home / "logs" / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ratchet.cli", "worker"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

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


def _tell(summary: Summary, out: TextIO) -> None:
    run = summary.run
    print(
        f"Run {run.id} is {run.status}: {run.result or run.reason}\n"
        f"{summary.completed_steps} steps completed in {summary.attempts} attempts by {summary.processes} processes; "
        f"{summary.interrupted} interrupted, {summary.done_twice} done twice.\n"
        f"Look at it: ratchet runs show {run.id} · ratchet events --run {run.id}",
        file=out,
    )
