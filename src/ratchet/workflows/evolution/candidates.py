"""Which tools are worth making better, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ratchet.config.workflow_settings import Evolution
from ratchet.kernel import RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.tools import ToolRow, VersionRow, changed_tools, versions_by_id
from ratchet.workflows.evolution.degradation import Decision
from ratchet.workflows.evolution.loading import tool_of
from ratchet.workflows.evolution.looking import recent_scores, should_evolve
from ratchet.workflows.evolution.parts import parts_of

LEAST_CALLS = 10
GOOD = 0.75
# The most used ones are looked into; a tool that is hardly used is worth little.
_MOST_LOOKED_AT = 200
_MOST_TOOLS = 100_000


@dataclass(frozen=True, slots=True)
class Opportunity:
    """A tool that could be better. `value` is how often it is used times what it lacks."""

    tool: str
    folder: str
    calls: int
    quality: float
    value: float
    why: str


def find_opportunities(tx: Transaction, settings: Evolution, now: int) -> list[Opportunity]:
    """Tools in use that are not good or have become worse, the most valuable first."""
    found = [_opportunity(tx, tool, version, settings, now) for tool, version in _busiest(tx)]
    return sorted((each for each in found if each is not None), key=lambda each: (-each.value, each.tool))


def _busiest(tx: Transaction) -> Sequence[tuple[ToolRow, VersionRow]]:
    known = changed_tools(tx, after=0, limit=_MOST_TOOLS)
    tools = [tool for tool in known if not tool.removed and tool.pinned_id is None]
    versions = versions_by_id(tx, [tool.current_id for tool in tools if tool.current_id is not None])
    pairs = [(tool, versions[tool.current_id]) for tool in tools if tool.current_id in versions]
    used = [pair for pair in pairs if pair[1].calls >= LEAST_CALLS]
    return sorted(used, key=lambda pair: -pair[1].calls)[:_MOST_LOOKED_AT]


def _opportunity(
    tx: Transaction, tool: ToolRow, version: VersionRow, settings: Evolution, now: int
) -> Opportunity | None:
    try:
        definition = tool_of(tool, version)
        parts_of(definition)
    except RatchetError:
        # One that cannot be rewritten is no opportunity.
        return None
    scores = recent_scores(tx, version.id, definition)
    if not scores:
        return None
    quality = fmean(scores)
    decision = should_evolve(tx, tool, settings, now)
    if quality < GOOD and not decision.yes:
        decision = Decision(True, f"{version.calls} calls with a mean score of {quality:.2f}, below {GOOD:g}")
    if not decision.yes:
        return None
    value = version.calls * (1.0 - quality)
    return Opportunity(tool.name, tool.folder, version.calls, quality, value, decision.why)
