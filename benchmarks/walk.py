"""`python -m benchmarks.walk`: how many modules one unit of work goes through, and how often it changes module.

The demo's acts are played in this process under a profiler. It counts calls of Ratchet's own functions from the moment
the unit begins until it ends, in whatever task or thread they are made, and reports the unit that touched most.
"""

from __future__ import annotations

import contextvars
import io
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ratchet.agents.change import change_agent
from ratchet.config import load_settings
from ratchet.demo.show import show
from ratchet.protocols.step import work_on
from ratchet.research.session import hold_session

# A unit of work, and the coroutine function that does it.
UNITS: dict[str, tuple[str, Callable[..., Any]]] = {
    "a protocol step": ("protocols", work_on),
    "a research trial": ("research", hold_session),
    "a change of an agent": ("agents", change_agent),
}


class Walk:
    """The modules of one unit, and how often a call led from one module into another."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.changes = 0


class Profiler:
    """Follows each unit by a context variable, which tasks and threads inherit."""

    def __init__(self, units: dict[CodeType, str]) -> None:
        self._units = units
        self._current: contextvars.ContextVar[Walk | None] = contextvars.ContextVar("walk", default=None)
        self._open: dict[FrameType, Walk] = {}
        self.walks: dict[str, list[Walk]] = {name: [] for name in units.values()}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        unit = self._units.get(frame.f_code)
        if unit is not None:
            self._at_unit(frame, event, unit)
        walk = self._current.get()
        module = frame.f_globals.get("__name__", "")
        if walk is None or event != "call" or not module.startswith("ratchet."):
            return
        walk.calls[module] += 1
        caller = frame.f_back
        if caller is not None and caller.f_globals.get("__name__", "") != module:
            walk.changes += 1

    def _at_unit(self, frame: FrameType, event: str, unit: str) -> None:
        """A coroutine is called again each time it resumes: the same frame is the same unit."""
        if event == "call":
            if frame not in self._open:
                self._open[frame] = Walk()
                self.walks[unit].append(self._open[frame])
            self._current.set(self._open[frame])
        elif event == "return":
            self._current.set(None)


def main() -> int:
    code = {function.__code__: name for name, (_, function) in UNITS.items()}
    profiler = Profiler(code)
    with tempfile.TemporaryDirectory(prefix="ratchet-walk-") as directory:
        os.environ["RATCHET_HOME"] = directory
        loaded = load_settings()
        threading.setprofile(profiler)
        sys.setprofile(profiler)
        try:
            demo = show(loaded, [act for act, _ in UNITS.values()], io.StringIO())
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    if failed := [each for each in demo.outcomes if not each.passed]:
        print(f"the demo failed: {failed}", file=sys.stderr)
        return 1
    print(f"{'unit':24}{'modules':>8}{'changes of module':>19}")
    for name, walks in profiler.walks.items():
        longest = max(walks, key=lambda walk: len(walk.calls))
        print(f"{name:24}{len(longest.calls):8}{longest.changes:19}")
        if "--list" in sys.argv:
            for module, calls in sorted(longest.calls.items()):
                print(f"  {calls:6}  {module}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
