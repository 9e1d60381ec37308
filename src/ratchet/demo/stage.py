"""What an act works with: the ledger, the runtime, a place of its own, and somebody to tell."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.config import Loaded
from ratchet.files import try_lock
from ratchet.kernel import RatchetError, RunStatus
from ratchet.ledger import Event, EventFilter, Ledger, Run, follow
from ratchet.ledger.runs import get_run, list_runs
from ratchet.research.views.markup import Markup
from ratchet.runtime import Runtime

_FOLDER, _REPORTS = "demo", "reports"
_ENDED = "ended"


@dataclass(frozen=True, slots=True)
class DemoPlace:
    """The place of demo `number`. `taken_up` says that an earlier process began it."""

    home: Path
    number: int
    taken_up: bool

    @property
    def directory(self) -> Path:
        return self.home / _FOLDER / str(self.number)

    @property
    def report(self) -> Path:
        return self.home / _REPORTS / f"demo-{self.number}.html"

    def name(self, what: str) -> str:
        """A name that no other demo of this home uses."""
        return f"demo-{self.number}-{what}"

    def end(self) -> None:
        """Leave it alone from now on, however it ended."""
        (self.directory / _ENDED).touch()


@contextlib.contextmanager
def claim(home: Path) -> Iterator[DemoPlace]:
    """A place that nobody else works in until the block ends: the newest that was cut off, or a new one."""
    root = home / _FOLDER
    root.mkdir(parents=True, exist_ok=True)
    numbers = sorted((int(each.name) for each in root.iterdir() if each.name.isdecimal()), reverse=True)
    for number in numbers:
        with _held(root / str(number)) as held:
            if held and not (root / str(number) / _ENDED).exists():
                yield DemoPlace(home, number, taken_up=True)
                return
    number = numbers[0] if numbers else 0
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            (root / str(number)).mkdir()
            with _held(root / str(number)) as held:
                if held:
                    yield DemoPlace(home, number, taken_up=False)
                    return


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[bool]:
    """Whether the directory is ours until the block ends. A process that dies gives it back."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class DemoCommand:
    """Something to type in order to see more, and what it shows."""

    line: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One act that went well.

    `recorded` says what in it came from a recording, and is empty where nothing did; `real` what did not. `facts` are
    its figures by what they mean, `look` leads on.
    """

    headline: str
    facts: Mapping[str, str]
    real: str
    recorded: str = ""
    runs: Sequence[int] = ()
    look: Sequence[DemoCommand] = ()
    pictures: Sequence[Markup] = ()
    quotes: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        return bool(self.recorded)


@dataclass(frozen=True, slots=True)
class Failed:
    """One act that did not, and why."""

    reason: str
    hint: str | None = None

    @property
    def short(self) -> str:
        """The first line of the reason: behind it may be where in the code it happened."""
        return self.reason.strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """How an act ended, and how long it took."""

    act: str
    seconds: float
    came: Shown | Failed

    @property
    def passed(self) -> bool:
        return isinstance(self.came, Shown)

    def record(self) -> dict[str, Any]:
        """As JSON, without the pictures."""
        common = {"act": self.act, "passed": self.passed, "seconds": round(self.seconds, 1)}
        match self.came:
            case Shown() as shown:
                return {
                    **common,
                    "simulated": shown.simulated,
                    "headline": shown.headline,
                    "facts": dict(shown.facts),
                    "real": shown.real,
                    "recorded": shown.recorded or None,
                    "runs": list(shown.runs),
                    "look": [each.line for each in shown.look],
                }
            case Failed() as failed:
                return {**common, "reason": failed.reason, "hint": failed.hint}


RECORDED = "No model was asked: what the engine said and wrote is a recording that comes with Ratchet"


def recorded_engine(name: str) -> str:
    """The engine that plays the recording of that name, in any process of this machine."""
    return f"replay:{Path(__file__).parent / 'recordings' / name}.jsonl"


_STANDS = {f"run.{status}" for status in RunStatus if status.stands}


class Interrupted(Exception):
    """Somebody wants the demo to stop. What was done stays, and the next demo continues from there."""


class ActFailed(RatchetError):
    """What an act wanted to show did not come about."""


@dataclass(frozen=True, slots=True)
class DemoStage:
    """`stop` is set when the demo is to end; `say` tells a line of this act."""

    loaded: Loaded
    ledger: Ledger
    runtime: Runtime
    place: DemoPlace
    stop: threading.Event
    say: Callable[[str], None]

    def find_run(self, kind: str, name: str) -> Run | None:
        """The newest run of that name: of a demo that was cut off, the one that it had begun."""
        with self.ledger.read() as tx:
            found = list_runs(tx, kind=kind, name=name, limit=1)
        return found[0] if found else None

    def carried(self, run_id: int, hear: Callable[[Event], None]) -> Run:
        """Tell each event of a run from its beginning until it has ended.

        Raises `ActFailed` when it did not end well, and `Interrupted`.
        """
        for event in follow(self.ledger, 0, where=EventFilter(run_id=run_id), stop=self.stop):
            hear(event)
            if event.type in _STANDS:
                with self.ledger.read() as tx:
                    run = get_run(tx, run_id)
                if run.status is RunStatus.COMPLETED:
                    return run
                if run.status.stands:
                    raise ActFailed(
                        f"run {run_id} is {run.status}: {run.reason or 'no reason was given'}",
                        hint=f"ratchet runs show {run_id}",
                    )
        raise Interrupted
