"""Kinds of jobs, each with the function that does the work, and how each kind of run is paused, resumed, cancelled."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ratchet.ledger import Run, Transaction
    from ratchet.runtime.context import JobContext
    from ratchet.runtime.runtime import Runtime

Handler = Callable[["JobContext"], Awaitable[Any]] | Callable[["JobContext"], Any]
RunAction = Callable[["Transaction", "Runtime", "Run", str], None]
ENTRY_POINTS = "ratchet.jobs"


@dataclass(frozen=True, slots=True)
class Kind:
    """A handler may be `async` (preferred: it is cancelled when stopped) or plain (it runs in a thread and must look at
    `context.stopping` itself)."""

    name: str
    handler: Handler
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunActions:
    """How a flow pauses, resumes and cancels its runs, given the reason; None where it is as with every run.

    Callers use `pause_run`, `resume_run` and `cancel_run`, which find the kind of the run.
    """

    pause: RunAction | None = None
    resume: RunAction | None = None
    cancel: RunAction | None = None


class Kinds:
    """The kinds that a process knows."""

    def __init__(self, entries: Iterable[EntryPoint] = ()) -> None:
        self._kinds: dict[str, Kind] = {}
        self._actions: dict[str, Callable[[Transaction, Run], RunActions]] = {}
        self._starts: list[Callable[[Runtime], None]] = []
        self._unloaded = list(entries)
        self._broken: list[Exception] = []

    @classmethod
    def installed(cls) -> Kinds:
        """Every kind of the installed packages: each entry point is a function that takes `Kinds` and adds to it."""
        from importlib.metadata import entry_points

        return cls(entry_points(group=ENTRY_POINTS))

    def _load(self, *, broken_too: bool = False) -> None:
        """Load the entry points, the first time. One that cannot be loaded is an error, unless `broken_too`."""
        while self._unloaded:
            try:
                self._unloaded.pop(0).load()(self)
            except Exception as error:  # noqa: BLE001  whatever a package of others raises
                self._broken.append(error)
        if self._broken and not broken_too:
            raise self._broken[0]

    def add(self, name: str, handler: Handler, *, timeout_seconds: float | None = None) -> None:
        if name in self._kinds:
            raise Misuse(f"job kind {name!r} is defined twice")
        self._kinds[name] = Kind(name, handler, timeout_seconds)

    def add_run(self, kind: str, actions: Callable[[Transaction, Run], RunActions]) -> None:
        """Define how runs of a kind are paused, resumed and cancelled."""
        if kind in self._actions:
            raise Misuse(f"run kind {kind!r} is defined twice")
        self._actions[kind] = actions

    def of_run(self, tx: Transaction, run: Run) -> RunActions:
        """How a run is paused, resumed and cancelled. A broken package must not keep anyone from cancelling."""
        self._load(broken_too=True)
        found = self._actions.get(run.kind)
        return RunActions() if found is None else found(tx, run)

    def at_start(self, call: Callable[[Runtime], None]) -> None:
        """Have `call` called before a worker begins, to bring the ledger in line with the settings."""
        self._starts.append(call)

    def start(self, runtime: Runtime) -> None:
        self._load()
        for call in self._starts:
            call(runtime)

    def get(self, name: str) -> Kind:
        """The kind called `name`, or `Misuse` naming the nearest."""
        self._load()
        kind = self._kinds.get(name)
        if kind is None:
            near = difflib.get_close_matches(name, self._kinds, n=1)
            known = (
                f"did you mean {near[0]!r}?"
                if near
                else f"known kinds: {', '.join(sorted(self._kinds)) or 'none'}"
            )
            raise Misuse(f"there is no job kind {name!r}", hint=known)
        return kind
