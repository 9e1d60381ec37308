"""The whole demo: the first act alone, the four flows side by side on one ledger, and a report of them."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import Any, TextIO

from ratchet.config import Loaded, write_initial
from ratchet.demo.stage import (
    ActOutcome,
    DemoCommand,
    DemoPlace,
    DemoStage,
    Failed,
    Interrupted,
    Shown,
    claim,
)
from ratchet.kernel import RatchetError
from ratchet.ledger import Ledger
from ratchet.observe import logs
from ratchet.research.views.markup import CSS as RESEARCH
from ratchet.research.views.markup import Markup, joined, tag
from ratchet.runtime import Runtime, Worker, open_ledger, open_runtime
from ratchet.runtime.signals import StopSignals

CSS = (
    RESEARCH
    + """
:root { --second: #0b7d4f; --first: #3566c0; --third: #7b3fa0; --mark: #7a4a00; --mark-page: #fff3dc; }
@media (prefers-color-scheme: dark) {
  :root { --second: #4cc38a; --first: #7aa5f0; --third: #cf9bf0; --mark: #f0c987; --mark-page: #3a2d14; }
}
body { max-width: 920px; }
a { color: var(--base); }
nav { display: flex; flex-wrap: wrap; gap: 6px 18px; margin: 14px 0 6px; }
section { border-top: 1px solid var(--line); margin-top: 34px; padding-top: 4px; }
h2 { font-size: 20px; margin: 18px 0 6px; display: flex; flex-wrap: wrap; gap: 10px; align-items: center; }
h3 { font-size: 14px; margin: 20px 0 6px; color: var(--soft); }
.lead { font-size: 16px; }
.badge { font-size: 12px; font-weight: 600; padding: 2px 9px; border-radius: 10px; border: 1px solid currentcolor; }
.badge.real { color: var(--keep); } .badge.failed { color: var(--crash); }
.badge.simulated { color: var(--mark); background: var(--mark-page); }
.recorded { border-left: 3px solid var(--mark); background: var(--mark-page); padding: 8px 12px; border-radius: 4px; }
.fact b { font-size: 16px; }
.picture { margin: 14px 0; overflow-x: auto; }
.picture .wide { overflow: visible; min-width: min-content; }
.wide svg { border: 0; border-radius: 8px; }
svg.plot { min-width: 560px; }
.edge { stroke: var(--faint); }
svg .mono { font-family: ui-monospace, Menlo, Consolas, monospace; }
.figures { display: flex; flex-wrap: wrap; gap: 18px; }
figure { margin: 0; width: min(250px, 45%); } figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; }
figure svg { width: 100%; }
.packed { fill: var(--second); fill-opacity: 0.3; stroke: var(--second); }
.box { fill: var(--page); stroke: var(--faint); stroke-width: 1.2; }
.box.good { stroke: var(--keep); } .box.bad { stroke: var(--crash); stroke-dasharray: 5 3; }
.bar, .first { fill: var(--first); } .second { fill: var(--second); } .third { fill: var(--third); }
.block.none { fill: var(--line); }
.cross { stroke: var(--crash); stroke-width: 3; fill: none; stroke-linecap: round; }
.key-first { background: var(--first); } .key-second { background: var(--second); }
.key-third { background: var(--third); }
dl.look { display: grid; grid-template-columns: minmax(0, max-content) minmax(0, 1fr); gap: 4px 18px; margin: 8px 0; }
dl.look dt { font: 13px/1.6 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
dl.look dd { margin: 0; color: var(--soft); }
@media (max-width: 640px) {
  dl.look { grid-template-columns: minmax(0, 1fr); gap: 0; } dl.look dd { margin-bottom: 8px; }
}
"""
)


# Nothing is loaded and nothing runs, whatever somebody has written.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_TITLES = {
    "durability": "Durability: a killed worker loses nothing",
    "research": "Research: a program gets better",
    "agents": "Agents: a service is rewritten in use",
    "workflows": "Workflows: steps side by side",
    "protocols": "Protocols: a change passes its gates",
}
_SERVE_REPORT = DemoCommand(
    "ratchet serve", "all of it live, at /console; `ratchet console` prints a link that lets you in"
)


def write_report(place: DemoPlace, outcomes: Sequence[ActOutcome], seconds: float) -> None:
    """Write the page at its place, whole or not at all."""
    written = page(place.number, outcomes, seconds, datetime.now(UTC))
    unfinished = place.report.with_name(f".{place.report.name}.{os.getpid()}")
    try:
        place.report.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(written, encoding="utf-8")
        unfinished.replace(place.report)
    except OSError as error:
        raise RatchetError(
            f"the report cannot be written to {place.report}: {error.strerror or error}",
            hint="make the directory writable or free some space, then start the demo again",
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def page(number: int, outcomes: Sequence[ActOutcome], seconds: float, at: datetime) -> str:
    title = f"Ratchet: demo {number}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(CSS)),
    )
    acts = tag("main", joined([*map(_act_section, outcomes), _bottom()]))
    body = tag("body", tag("header", _page_top(title, outcomes, seconds, at)), acts)
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _page_top(title: str, outcomes: Sequence[ActOutcome], seconds: float, at: datetime) -> Markup:
    failed = sum(1 for each in outcomes if not each.passed)
    came = f"{failed} of {len(outcomes)} acts failed" if failed else "Everything went well"
    made = (
        f"{came}, in {seconds:.0f} s on {os.cpu_count()} processors with Python {platform.python_version()}."
    )
    links = (tag("a", _TITLES[each.act].partition(":")[0], href=f"#{each.act}") for each in outcomes)
    return joined(
        [
            tag("h1", title),
            tag("p", made, class_="lead"),
            tag("p", at.strftime("%d %B %Y, %H:%M UTC"), class_="soft"),
            tag("nav", *links, aria_label="Acts"),
            tag(
                "p",
                "An act is marked ",
                tag("span", "real", class_="badge real"),
                " if nothing in it was recorded, and ",
                tag("span", "simulated", class_="badge simulated"),
                " if recorded sessions took the place of a model. Code that recordings wrote was still run, tested "
                "and judged. Ratchet marks such runs in its ledger too.",
            ),
        ]
    )


def _act_section(outcome: ActOutcome) -> Markup:
    match outcome.came:
        case Shown() as shown:
            word = "simulated" if shown.simulated else "real"
            inside = joined(list(_inside(shown)))
        case Failed() as failed:
            word = "failed"
            inside = joined(list(_why(failed)))
    took = tag("p", f"This act took {outcome.seconds:.1f} s.", class_="soft")
    heading = tag("h2", _TITLES[outcome.act], tag("span", word, class_=f"badge {word}"))
    return tag("section", heading, inside, took, id=outcome.act)


def _inside(shown: Shown) -> Iterator[Markup]:
    yield tag("p", shown.headline, class_="lead")
    if shown.recorded:
        yield tag("p", tag("b", "Recorded: "), shown.recorded, class_="recorded")
    yield tag("p", tag("b", "Real: "), shown.real)
    facts = (
        tag("div", tag("b", value), tag("span", name), class_="fact") for name, value in shown.facts.items()
    )
    yield tag("div", *facts, class_="facts")
    for number, picture in enumerate(shown.pictures, 1):
        yield _scrolling("picture", f"Picture {number}", picture)
    for name, text in shown.quotes.items():
        yield tag("h3", name)
        yield _scrolling("wide", name, tag("pre", *_lines(text))) if "\n" in text else tag("p", text)
    yield tag("h3", "Look further")
    yield _look(shown.look)


def _why(failed: Failed) -> Iterator[Markup]:
    yield tag("p", failed.short, class_="lead")
    if failed.hint:
        yield tag("p", failed.hint)
    if failed.short != failed.reason:
        yield _scrolling("wide", "The whole reason", tag("pre", failed.reason))


def _scrolling(kind: str, name: str, inside: Markup) -> Markup:
    """What may be wider than the page, and can be scrolled with the keyboard too."""
    return tag("div", inside, class_=kind, tabindex="0", role="group", aria_label=name)


def _lines(text: str) -> Iterator[Markup]:
    """Lines of a patch in their colours; those of anything else as they are."""
    for line in text.splitlines():
        kind = {"+": "plus", "-": "minus", "@": "hunk"}.get(line[:1])
        yield tag("span", line, class_=kind) if kind else tag("span", line)
        yield Markup("\n")


def _look(commands: Sequence[DemoCommand]) -> Markup:
    rows = [part for each in commands for part in (tag("dt", each.line), tag("dd", each.why))]
    return tag("dl", *rows, class_="look")


def _bottom() -> Markup:
    return tag(
        "section",
        tag("h2", "Continue"),
        _look([_SERVE_REPORT, DemoCommand("ratchet runs list", "every run of this home")]),
    )


_WIDTH = 10
_COLOURS = {"durability": 35, "research": 32, "agents": 36, "workflows": 33, "protocols": 34}


class DemoOutput:
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


Act = Callable[[DemoStage], Shown]
# It kills workers, so nobody else's work may be queued meanwhile.
ALONE = "durability"
ACTS = (ALONE, "research", "agents", "workflows", "protocols")
_SLOTS = 4
_SERVE = DemoCommand(
    "ratchet serve", "all of it live, at /console; `ratchet console` prints a link that lets you in"
)


@dataclass(frozen=True, slots=True)
class Demo:
    """What a demo came to. `interrupted` says that it stopped on request, and has no report yet."""

    place: DemoPlace
    outcomes: Sequence[ActOutcome]
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

    A demo of this home that was cut off is resumed where it stopped. Only in the main thread.
    """
    chosen = {name: _act(name) if acts is None else acts[name] for name in names}
    _be_quiet(loaded)
    write_initial(loaded.home)
    stop = threading.Event()
    with StopSignals() as signals, claim(loaded.home) as place:
        signals.when_asked(stop.set)
        teller = DemoOutput(out)
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
    place: DemoPlace,
    stop: threading.Event,
    teller: DemoOutput,
    acts: Mapping[str, Act],
) -> list[ActOutcome]:
    def stage(runtime: Runtime, name: str) -> DemoStage:
        return DemoStage(loaded, ledger, runtime, place, stop, partial(teller.of, name))

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


def _play(name: str, act: Act, stage: DemoStage) -> ActOutcome:
    began = time.monotonic()
    try:
        came: Shown | Failed = act(stage)
    except Interrupted:
        return ActOutcome(name, time.monotonic() - began, Failed("it was interrupted"))
    except RatchetError as error:
        came = Failed(str(error), error.hint)
    except Exception as error:  # noqa: BLE001 - whatever breaks one act, the others are shown and it is told
        came = Failed(f"{type(error).__name__}: {error}")
    if isinstance(came, Failed):
        stage.say(f"FAILED: {came.short}")
    return ActOutcome(name, time.monotonic() - began, came)


def _act(name: str) -> Act:
    """Imported only when it is shown: each brings its whole flow."""
    act: Act = import_module(f"ratchet.demo.{name}").act
    return act


def _be_quiet(loaded: Loaded) -> None:
    """A worker tells a log what it does; here a person is told what it comes to."""
    level = loaded.settings.log.level
    logs.configure("warning" if level == "info" else level, loaded.settings.log.format)


def _begin(teller: DemoOutput, place: DemoPlace, loaded: Loaded) -> None:
    if place.taken_up:
        teller.say(f"Taking up demo {place.number}, which was cut off, where it stopped.")
    else:
        teller.say(f"Demo {place.number}, in {loaded.home}. It needs no model, no key and no network.")
    teller.say(
        "What an engine with a model would say is a recording, and marked: (a recording), simulated.\n"
    )


def _end(teller: DemoOutput, demo: Demo) -> None:
    if demo.interrupted:
        teller.say("\nInterrupted. Nothing that was done is lost: `ratchet demo` resumes where it stopped.")
        return
    teller.say()
    for each in demo.outcomes:
        teller.say(f"{each.act:<10}  {_report_line(each)}")
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


def _report_line(outcome: ActOutcome) -> str:
    match outcome.came:
        case Shown() as shown:
            return f"{'simulated' if shown.simulated else 'real':<9}  {shown.headline}"
        case Failed() as failed:
            hint = f" ({failed.hint})" if failed.hint else ""
            return f"{'FAILED':<9}  {failed.short}{hint}"


def _further(outcomes: Sequence[ActOutcome]) -> list[DemoCommand]:
    """The first thing to look at, of each flow."""
    shown = [each.came for each in outcomes if isinstance(each.came, Shown) and each.act != ALONE]
    found = [each.look[0] for each in shown if each.look]
    return found or [DemoCommand("ratchet runs list", "every run of this home")]
