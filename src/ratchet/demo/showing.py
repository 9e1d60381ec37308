"""The whole demo: the first act alone, the four flows side by side on one ledger, and a report in the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import Any, TextIO

from ratchet.config import Loaded, write_initial
from ratchet.demo.place import Place, claim
from ratchet.demo.report import write_report
from ratchet.demo.shown import Command, Failed, Outcome, Shown
from ratchet.demo.stage import Interrupted, Stage
from ratchet.kernel import RatchetError
from ratchet.ledger import Ledger
from ratchet.observe import logs
from ratchet.runtime import Runtime, Worker, open_ledger, open_runtime
from ratchet.runtime.signals import StopSignals

_WIDTH = 10
_COLOURS = {"durability": 35, "research": 32, "agents": 36, "workflows": 33, "protocols": 34}


class Teller:
    """Writes lines to `out` from any thread, each whole."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()
        self._coloured = out.isatty()
        # Keeps a line in one piece.
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def say(self, text: str = "") -> None:
        """A line that belongs to no act."""
        self._write(text)

    def of(self, act: str, text: str) -> None:
        """A line of an act. Text may come from anywhere, and a terminal obeys control characters."""
        plain = "".join(each if each.isprintable() else " " for each in text)
        name = f"{act:<{_WIDTH}}"
        shown = f"\x1b[{_COLOURS.get(act, 0)}m{name}\x1b[0m" if self._coloured else name
        self._write(f"{self.seconds:6.1f} s  {shown}  {plain}")

    def _write(self, line: str) -> None:
        with self._lock:
            print(line, file=self._out, flush=True)


Act = Callable[[Stage], Shown]
# It kills workers, so nobody else's work may lie in line meanwhile.
ALONE = "durability"
ACTS = (ALONE, "research", "agents", "workflows", "protocols")
_SLOTS = 4
_SERVE = Command(
    "ratchet serve", "all of it live, at /console; `ratchet console` prints a link that lets you in"
)


@dataclass(frozen=True, slots=True)
class Demo:
    """What a demo came to. `interrupted` says that it stopped on request, and has no report yet."""

    place: Place
    outcomes: Sequence[Outcome]
    seconds: float
    interrupted: bool

    @property
    def passed(self) -> bool:
        return not self.interrupted and all(each.passed for each in self.outcomes)

    def record(self) -> dict[str, Any]:
        return {
            "demo": self.place.number,
            "passed": self.passed,
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 1),
            "report": None if self.interrupted else str(self.place.report),
            "acts": [each.record() for each in self.outcomes],
        }


def show(loaded: Loaded, names: Sequence[str], out: TextIO, *, acts: Mapping[str, Act] | None = None) -> Demo:
    """Show the acts of these names, and write the report. One that fails keeps no other from being shown.

    A demo of this home that was cut off is taken up where it stopped. Only in the main thread.
    """
    chosen = {name: _act(name) if acts is None else acts[name] for name in names}
    _be_quiet(loaded)
    write_initial(loaded.home)
    stop = threading.Event()
    with StopSignals() as signals, claim(loaded.home) as place:
        signals.when_asked(stop.set)
        teller = Teller(out)
        _begin(teller, place, loaded)
        with open_ledger(loaded) as ledger:
            outcomes = _perform(loaded, ledger, place, stop, teller, chosen)
        demo = Demo(place, outcomes, teller.seconds, stop.is_set())
        if not demo.interrupted:
            write_report(place, outcomes, demo.seconds)
            place.end()
    _end(teller, demo)
    return demo


def _perform(
    loaded: Loaded,
    ledger: Ledger,
    place: Place,
    stop: threading.Event,
    teller: Teller,
    acts: Mapping[str, Act],
) -> list[Outcome]:
    def stage(runtime: Runtime, name: str) -> Stage:
        return Stage(loaded, ledger, runtime, place, stop, partial(teller.of, name))

    runtime = open_runtime(loaded, ledger)
    outcomes = []
    if ALONE in acts:
        outcomes.append(_play(ALONE, acts[ALONE], stage(runtime, ALONE)))
    together = [name for name in acts if name != ALONE]
    if together and not stop.is_set():
        if together[1:]:
            teller.say(f"\n{len(together)} flows side by side, on one ledger:\n")
        worker = Worker(runtime, role="demo", slots=max(_SLOTS, loaded.settings.runtime.slots))
        worker.start()
        try:
            with ThreadPoolExecutor(len(together)) as pool:
                playing = [pool.submit(_play, name, acts[name], stage(runtime, name)) for name in together]
                outcomes += [each.result() for each in playing]
        finally:
            worker.stop(drain_seconds=0.0)
    return outcomes


def _play(name: str, act: Act, stage: Stage) -> Outcome:
    began = time.monotonic()
    try:
        came: Shown | Failed = act(stage)
    except Interrupted:
        return Outcome(name, time.monotonic() - began, Failed("it was interrupted"))
    except RatchetError as error:
        came = Failed(str(error), error.hint)
    except Exception as error:  # noqa: BLE001 - whatever breaks one act, the others are shown and it is told
        came = Failed(f"{type(error).__name__}: {error}")
    if isinstance(came, Failed):
        stage.say(f"FAILED: {came.short}")
    return Outcome(name, time.monotonic() - began, came)


def _act(name: str) -> Act:
    """Imported only when it is shown: each brings its whole flow."""
    act: Act = import_module(f"ratchet.demo.acts.{name}").act
    return act


def _be_quiet(loaded: Loaded) -> None:
    """A worker tells a log what it does; here a person is told what it comes to."""
    level = loaded.settings.log.level
    logs.configure("warning" if level == "info" else level, loaded.settings.log.format)


def _begin(teller: Teller, place: Place, loaded: Loaded) -> None:
    if place.taken_up:
        teller.say(f"Taking up demo {place.number}, which was cut off, where it stopped.")
    else:
        teller.say(f"Demo {place.number}, in {loaded.home}. It needs no model, no key and no network.")
    teller.say(
        "What an engine with a model would say is a recording, and marked: (a recording), simulated.\n"
    )


def _end(teller: Teller, demo: Demo) -> None:
    if demo.interrupted:
        teller.say("\nInterrupted. Nothing that was done is lost: `ratchet demo` goes on where it stopped.")
        return
    teller.say()
    for each in demo.outcomes:
        teller.say(f"{each.act:<10}  {_told(each)}")
    failed = [each.act for each in demo.outcomes if not each.passed]
    ended = f"{', '.join(failed)} failed" if failed else "Everything went well"
    teller.say(f"\n{ended}, in {demo.seconds:.0f} s. The report: {demo.place.report}\n")
    activate = Path(sys.prefix, "bin", "activate")
    first = f" (type `. {activate}` first)" if which("ratchet") is None and activate.exists() else ""
    teller.say(f"Look further{first}:")
    commands = [*_further(demo.outcomes), _SERVE]
    width = max(len(command.line) for command in commands)
    for command in commands:
        teller.say(f"  {command.line:<{width}}  {command.why}")


def _told(outcome: Outcome) -> str:
    match outcome.came:
        case Shown() as shown:
            return f"{'simulated' if shown.simulated else 'real':<9}  {shown.headline}"
        case Failed() as failed:
            hint = f" ({failed.hint})" if failed.hint else ""
            return f"{'FAILED':<9}  {failed.short}{hint}"


def _further(outcomes: Sequence[Outcome]) -> list[Command]:
    """The first thing to look at, of each flow."""
    shown = [each.came for each in outcomes if isinstance(each.came, Shown) and each.act != ALONE]
    found = [each.look[0] for each in shown if each.look]
    return found or [Command("ratchet runs list", "every run of this home")]
