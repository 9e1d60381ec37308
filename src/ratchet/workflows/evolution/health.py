"""When a tool was last looked at, and whether it is time to ask for a better one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from ratchet.config.workflow_settings import Evolution
from ratchet.ledger import Transaction
from ratchet.ledger.events import EventFilter, latest
from ratchet.ledger.runs import list_runs
from ratchet.ledger.tools import ToolRow, VersionRow, calls_of, get_version
from ratchet.tools.definition import Tool, read_tool

# However slow or large a call that succeeded was, it is worth more than one that failed.
_LEAST_FACTOR = 0.5
# As many calls at the end of the history speak for how it is now.
RECENT = 3
# So many calls are looked at, however many there were.
HISTORY = 100
CHECKED = "tool.checked"
_MINUTE_MS = 60_000
_PAGE = 500


class Measured(Protocol):
    """The numbers of a call on record."""

    @property
    def ok(self) -> bool: ...

    @property
    def wall_ms(self) -> float: ...

    @property
    def peak_bytes(self) -> int | None: ...

    @property
    def score(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Targets:
    """What a tool should stay within. One that names no target is not held to any."""

    wall_ms: float | None = None
    peak_bytes: int | None = None

    @classmethod
    def of(cls, constraints: Mapping[str, Any]) -> Targets:
        """The targets among a tool's constraints: `target_ms` and `target_memory_mb`."""
        wall, memory = constraints.get("target_ms"), constraints.get("target_memory_mb")
        return cls(None if not wall else float(wall), None if not memory else int(memory * 2**20))


def call_score(call: Measured, targets: Targets) -> float:
    """The score that the call was given, or else what its numbers say: nothing for a failure, and less than all for
    one that took longer or more memory than the tool's targets."""
    if call.score is not None:
        return min(1.0, max(0.0, call.score))
    if not call.ok:
        return 0.0
    return _factor(targets.wall_ms, call.wall_ms) * _factor(targets.peak_bytes, call.peak_bytes)


def _factor(target: float | None, taken: float | None) -> float:
    if target is None or not taken:
        return 1.0
    return min(1.0, max(_LEAST_FACTOR, target / taken))


@dataclass(frozen=True, slots=True)
class EvolveDecision:
    """Whether to ask for a better version, and why or why not."""

    yes: bool
    why: str


def weigh(scores: Sequence[float], settings: Evolution) -> EvolveDecision:
    """What the scores of a version say, oldest first."""
    # One more than asked for, so that there is something to compare the latest with.
    needed = max(settings.min_runs, RECENT)
    if len(scores) <= needed:
        return EvolveDecision(False, f"{len(scores)} calls are on record; more than {needed} are needed")
    # Rounded: what differs only in the last digit of a sum is equal.
    recent, older = round(fmean(scores[-RECENT:]), 9), round(fmean(scores[:-RECENT]), 9)
    change = round(recent - older, 9)
    if change < -settings.drop:
        return EvolveDecision(
            True, f"the score fell from {older:.2f} to {recent:.2f} over the last {RECENT} calls"
        )
    if recent < settings.low:
        return EvolveDecision(
            True, f"the score of the last {RECENT} calls is {recent:.2f}, below {settings.low:g}"
        )
    return EvolveDecision(False, f"the score of the last {RECENT} calls is {recent:.2f}, as good as before")


def tool_of(tool: ToolRow, version: VersionRow) -> Tool:
    """The definition of a version. Its folder is that of the file it came from, if it came from one."""
    folder = Path(tool.source).parent if Path(tool.source).is_absolute() else None
    return replace(read_tool(version.definition, folder=None, id=tool.name, stored=True), folder=folder)


def should_evolve(tx: Transaction, tool: ToolRow, settings: Evolution, now: int) -> EvolveDecision:
    """Whether the version in use has become worse or is not good, by its last calls. Changes nothing.

    Says no to one that was looked at a short time ago; `note_look` remembers that, whatever process looks next.
    """
    if tool.current_id is None or tool.removed:
        return EvolveDecision(False, f"the tool {tool.name} has no version in use")
    if tool.pinned_id is not None:
        return EvolveDecision(False, f"the tool {tool.name} is pinned")
    last = last_look(tx, tool, now - settings.check_minutes * _MINUTE_MS)
    if last is not None:
        minutes = (now - last) // _MINUTE_MS
        return EvolveDecision(
            False, f"it was looked at {minutes} minutes ago, and is every {settings.check_minutes}"
        )
    version = get_version(tx, tool.current_id)
    definition = tool_of(tool, version)
    if version.examples_failed:
        return broken(version, definition)
    return weigh(recent_scores(tx, tool.current_id, definition), settings)


def broken(version: VersionRow, definition: Tool) -> EvolveDecision:
    """A tool that fails its own examples needs no other reason."""
    checked = sum(example.checked for example in definition.examples)
    return EvolveDecision(True, f"it is broken: {version.examples_failed} of its {checked} examples fail")


def note_look(tx: Transaction, tool: ToolRow, decision: EvolveDecision) -> None:
    """Remember that a tool was looked at, and with what result."""
    data = {"tool": tool.name, "tool_id": tool.id, "evolve": decision.yes, "why": decision.why}
    tx.event(CHECKED, message=f"{tool.name}: {decision.why}", data=data)


def last_look(tx: Transaction, tool: ToolRow, since: int) -> int | None:
    """When the tool was last looked at or rewritten, if that was after `since`."""
    runs = list_runs(tx, name=run_name(tool.name), limit=1)
    rewritten = runs[0].created_at if runs and runs[0].created_at > since else None
    before: int | None = None
    # A tool is looked at once in that time, so there are no more events than tools.
    while page := latest(tx.connection, before=before, where=EventFilter(type=CHECKED), limit=_PAGE):
        for event in page:
            if event.at <= since:
                return rewritten
            if event.data["tool_id"] == tool.id:
                return max(event.at, rewritten or 0)
        before = page[-1].id
    return rewritten


def recent_scores(tx: Transaction, version_id: int, definition: Tool) -> list[float]:
    """What the last calls of a version were worth, oldest first. Those of simulations do not count."""
    targets = Targets.of(definition.constraints.extra)
    calls = calls_of(tx, version_id, limit=HISTORY)
    return [call_score(call, targets) for call in reversed(calls) if not call.simulated]


def run_name(tool: str) -> str:
    """How a run is called that rewrites a tool."""
    return f"evolve:{tool}"
