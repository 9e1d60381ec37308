"""Which tool of a workflow is worth making better."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ratchet.kernel import RatchetError
from ratchet.ledger import Run, Transaction
from ratchet.ledger.tools import ToolRow, VersionRow, get_version
from ratchet.workflows.evolution.loading import tool_of
from ratchet.workflows.evolution.looking import recent_scores
from ratchet.workflows.evolution.parts import parts_of
from ratchet.workflows.profiling.profile import Advice, StepProfile
from ratchet.workflows.running.plan import tools_of_steps


def advise(tx: Transaction, run: Run, steps: Sequence[StepProfile]) -> list[Advice]:
    """The tools of a run's steps, the most valuable first: used much, and not good or much of the longest way."""
    tools = tools_of_steps(tx, run)
    found = []
    for step in steps:
        tool = tools.get(step.tool or "")
        if tool is not None and tool.called_id is not None:
            found.append(_advice(tx, tool, get_version(tx, tool.called_id), step))
    return sorted(found, key=lambda each: (-each.value, each.step))


def _advice(tx: Transaction, tool: ToolRow, version: VersionRow, step: StepProfile) -> Advice:
    obstacle, scores = None, list[float]()
    try:
        definition = tool_of(tool, version)
        scores = recent_scores(tx, version.id, definition)
        parts_of(definition)
    except RatchetError as error:
        obstacle = str(error)
    if tool.pinned_id is not None:
        obstacle = f"the tool {tool.name} is pinned to {version.version}"
    quality = fmean(scores) if scores else 1.0
    value = version.calls * max(1.0 - quality, step.path_share)
    why = (
        f"{version.calls} calls with a mean score of {quality:.2f}; "
        f"step {step.step} is {step.path_share:.0%} of the longest way and {step.cost_share:.0%} of the cost"
    )
    return Advice(
        tool.name,
        tool.folder,
        step.step,
        version.calls,
        quality,
        step.path_share,
        value,
        why,
        obstacle,
    )
