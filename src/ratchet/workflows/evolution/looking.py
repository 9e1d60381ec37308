"""When a tool was last looked at, and whether it is time to ask for a better one."""

from __future__ import annotations

from ratchet.config.workflow_settings import Evolution
from ratchet.ledger import Transaction
from ratchet.ledger.events import Filter, latest
from ratchet.ledger.runs import list_runs
from ratchet.ledger.tools import ToolRow, calls_of, get_version
from ratchet.tools.definition import Tool
from ratchet.workflows.evolution.degradation import HISTORY, Decision, weigh
from ratchet.workflows.evolution.loading import tool_of
from ratchet.workflows.evolution.scoring import Targets, call_score

CHECKED = "tool.checked"
_MINUTE_MS = 60_000
_PAGE = 500


def should_evolve(tx: Transaction, tool: ToolRow, settings: Evolution, now: int) -> Decision:
    """Whether the version in use has become worse or is not good, by its last calls. Changes nothing.

    Says no to one that was looked at a short time ago; `note_look` remembers that, whatever process looks next.
    """
    if tool.current_id is None or tool.removed:
        return Decision(False, f"the tool {tool.name} has no version in use")
    if tool.pinned_id is not None:
        return Decision(False, f"the tool {tool.name} is pinned")
    last = last_look(tx, tool, now - settings.check_minutes * _MINUTE_MS)
    if last is not None:
        minutes = (now - last) // _MINUTE_MS
        return Decision(
            False, f"it was looked at {minutes} minutes ago, and is every {settings.check_minutes}"
        )
    definition = tool_of(tool, get_version(tx, tool.current_id))
    return weigh(recent_scores(tx, tool.current_id, definition), settings)


def note_look(tx: Transaction, tool: ToolRow, decision: Decision) -> None:
    """Remember that a tool was looked at, and with what result."""
    told = {"tool": tool.name, "tool_id": tool.id, "evolve": decision.yes, "why": decision.why}
    tx.event(CHECKED, message=f"{tool.name}: {decision.why}", data=told)


def last_look(tx: Transaction, tool: ToolRow, since: int) -> int | None:
    """When the tool was last looked at or rewritten, if that was after `since`."""
    runs = list_runs(tx, name=run_name(tool.name), limit=1)
    rewritten = runs[0].created_at if runs and runs[0].created_at > since else None
    before: int | None = None
    # A tool is looked at once in that time, so there are no more events than tools.
    while page := latest(tx.connection, before=before, where=Filter(type=CHECKED), limit=_PAGE):
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
