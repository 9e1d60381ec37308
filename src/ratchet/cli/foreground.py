"""Carrying a run in the foreground: a worker inside the command, until the run stops."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ratchet.cli.opening import require_ledger
from ratchet.cli.output import note, silent_seconds
from ratchet.cli.progress import working
from ratchet.cli.words import one_line
from ratchet.kernel import shortened, with_hint
from ratchet.ledger import Event, EventFilter, Ledger, Run
from ratchet.ledger.events import last_id, since
from ratchet.ledger.runs import get_run
from ratchet.observe import logs
from ratchet.runtime import open_ledger, open_runtime
from ratchet.runtime.job import unfinished_jobs
from ratchet.runtime.processes import COMMAND, cut_off_runs
from ratchet.runtime.runs import follow_run
from ratchet.runtime.signals import StopSignals

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.config import Loaded
    from ratchet.ledger import Event
    from ratchet.runtime import Runtime


# Less than ten, so that a busy machine is in time as well.
_EVERY_SECONDS = 8.0
_SHOWN = 160
_DOING = {
    "session.started": "the session has begun",
    "session.usage": "the model is at work",
    "session.message": "the model speaks",
    "session.reasoning": "the model thinks",
    "session.tool_call": "a tool is used:",
    "session.tool_result": "the model looks at a result",
    "session.file_change": "a file was changed:",
    "attempt.started": "an attempt has begun",
    "step.needs_qa": "the checks run",
    "run.running": "the run has begun",
    "environment_command": "the project is set up:",
    "environment_output": "the project is set up; its command printed:",
    "baseline_started": "the checks run on the untouched base",
}


class WaitNotice:
    """Hears the events of a run, and speaks up while it is silent. `quiet` never does."""

    def __init__(self, *, quiet: bool = False, every_seconds: float = _EVERY_SECONDS) -> None:
        self._quiet = quiet
        self._every = every_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="ratchet-heartbeat", daemon=True)
        self._doing = "the run to begin"
        self._since = self._began = time.monotonic()
        self._again_at: float | None = None
        """When a pause is over, if there is one."""

    def __enter__(self) -> Self:
        self._since = self._began = time.monotonic()
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._ended.set()
        if not self._quiet:
            self._thread.join()

    def hear(self, event: Event) -> None:
        data: Mapping[str, Any] = event.data if isinstance(event.data, Mapping) else {}
        message = one_line(event.message or "")
        now = time.monotonic()
        if event.type in ("session.retry", "research.pause"):
            seconds = data.get("seconds")
            told = one_line(str(data.get("reason") or message))
            self._set(told, now + seconds if isinstance(seconds, int | float) else None)
            if not self._quiet:
                note(self._waiting() if self._again_at is not None else f"retrying: {self._doing}")
        elif event.type in _DOING:
            shown = message if _DOING[event.type].endswith(":") else ""
            self._set(f"{_DOING[event.type]} {shown}".rstrip(), None)

    def _set(self, doing: str, again_at: float | None) -> None:
        self._doing = shortened(doing, _SHOWN)
        self._again_at, self._since = again_at, time.monotonic()

    def _waiting(self) -> str:
        if self._again_at is not None and (left := self._again_at - time.monotonic()) > 0:
            return f"retrying in {left:.0f} s: {self._doing}"
        waited = max(time.monotonic() - self._since, self._silent())
        return f"waiting for {waited:.0f} s: {self._doing}"

    def _silent(self) -> float:
        """How long nothing was said of this run. What a person did before it was no waiting."""
        return min(silent_seconds(), time.monotonic() - self._began)

    def _beat(self) -> None:
        while not self._ended.wait(max(0.1, self._every - self._silent())):
            if self._silent() >= self._every:
                note(self._waiting())


INTERRUPTED = 130
_BATCH = 500
_LOOK_SECONDS = 1.0


class Foreground:
    """A command's own worker, made by `foreground`."""

    def __init__(self, loaded: Loaded, ledger: Ledger) -> None:
        self.ledger = ledger
        self.runtime: Runtime = open_runtime(loaded, ledger)
        self._signals = StopSignals()
        self._asked = threading.Event()

    def check(
        self, check: Callable[[], None], *, detach: bool, every_seconds: float = _EVERY_SECONDS
    ) -> None:
        """Look at the engines before anything is begun, here or by a worker. Raises `NotReady`."""
        with working("looking at the engine", every_seconds=every_seconds):
            if not detach:
                check()
                return
            from ratchet.engines.preflight import check_for_worker

            left = check_for_worker(self.runtime, check)
        if left is not None:
            note(f"The worker needs what is not here: {one_line(with_hint(left))}.")

    def work_on(
        self, run_id: int, hear: Callable[[Event], None], *, quiet: bool, give_up: bool = False
    ) -> Run:
        """Work until the run has ended, is paused or blocked. Nothing that it has done is lost.

        A signal pauses it, and with `give_up` cancels it. Unless it is `quiet`, stderr says what the run waits for.
        """
        from ratchet.runtime import cancel_run, pause_run

        return self._work(run_id, follow_run, hear, cancel_run if give_up else pause_run, quiet=quiet)

    def carry_jobs(
        self,
        run_id: int,
        hear: Callable[[Event], None],
        *,
        quiet: bool,
        wait: Callable[[], bool],
        after: int | None = None,
    ) -> Run:
        """Work until nothing of the run is queued, whatever status that leaves it in. A signal pauses it.

        When nothing is, `wait` is asked again and again whether something may come from outside, until it says no.
        `hear` is called with the events from now on, or those after `after`.
        """
        from ratchet.runtime import pause_run

        watch = functools.partial(follow_jobs, wait=wait, after=after)
        return self._work(run_id, watch, hear, pause_run, quiet=quiet)

    def _work(
        self,
        run_id: int,
        watch: Callable[..., None],
        hear: Callable[[Event], None],
        let_go: Callable[..., None],
        *,
        quiet: bool,
    ) -> Run:
        # Loaded here: with --detach, or a mistake in what was asked for, nothing is worked on.
        from ratchet.runtime import Worker

        if not quiet:
            self._tell_cut_off(run_id)
        # Each run anew: what interrupts one has nothing to do with the next.
        self._signals, self._asked = StopSignals(), threading.Event()
        worker = Worker(self.runtime, role=COMMAND, run_id=run_id)
        heartbeat = WaitNotice(quiet=quiet)

        def heard(event: Event) -> None:
            hear(event)
            heartbeat.hear(event)

        with self._signals, heartbeat:
            self._signals.when_asked(self._asked.set)
            worker.start()
            try:
                watch(self.ledger, run_id, heard, stop=self._asked)
                if self._asked.is_set():
                    self._let_go(run_id, let_go)
            finally:
                worker.stop(drain_seconds=0.0)
        with self.ledger.read() as tx:
            return get_run(tx, run_id)

    def _tell_cut_off(self, run_id: int) -> None:
        with self.ledger.read() as tx:
            kind = get_run(tx, run_id).kind
            found = cut_off_runs(tx, kind, but=run_id)
        if found:
            first = found[0][0]
            resume = f"ratchet research resume {first}" if kind == "research" else "ratchet worker"
            note(
                f"Cut off earlier and not resumed: {', '.join(f'run {number} ({name})' for number, name in found)}. "
                f"Resume: `{resume}`; cancel: `ratchet runs cancel {first}`."
            )

    @property
    def interrupted(self) -> bool:
        return self._asked.is_set()

    def _let_go(self, run_id: int, how: Callable[..., None]) -> None:
        with self.ledger.write(actor="cli") as tx:
            if not get_run(tx, run_id).status.stands:
                how(tx, self.runtime, run_id, reason="interrupted in the foreground")


def follow_jobs(
    ledger: Ledger,
    run_id: int,
    hear: Callable[[Event], None],
    *,
    stop: threading.Event,
    wait: Callable[[], bool],
    after: int | None = None,
) -> None:
    """Tell of each event of a run, from now on or `after` one, until no job of it is queued and `wait` says that none
    will be."""
    rung = threading.Event()
    with ledger.read() as tx:
        after = last_id(tx.connection) if after is None else after
    with ledger.bell.listening(rung.set):
        while not stop.is_set():
            rung.clear()
            with ledger.read() as tx:
                # Before the events: what a job has told is read after its end, then.
                idle = not unfinished_jobs(tx, run_id)
                told = since(tx.connection, after, where=EventFilter(run_id=run_id), limit=_BATCH)
            for event in told:
                after = event.id
                hear(event)
            if len(told) == _BATCH:
                continue
            if idle and not wait():
                return
            rung.wait(_LOOK_SECONDS)


@contextlib.contextmanager
def foreground(loaded: Loaded) -> Iterator[Foreground]:
    # Of its own accord a worker tells a log what it does; here a person is told what it comes to.
    level = loaded.settings.log.level
    logs.configure("warning" if level == "info" else level, loaded.settings.log.format)
    with open_ledger(loaded) as ledger:
        yield Foreground(loaded, ledger)


@contextlib.contextmanager
def existing_foreground(session: CliSession) -> Iterator[Foreground]:
    """The same for work that there is already. Raises `Misuse` when there is no ledger."""
    loaded = session.load()
    require_ledger(loaded)
    with foreground(loaded) as here:
        yield here
