"""A batch of optimisation: the tools that are worth it most, one after the other, within a budget.

It is meant to be put on a schedule for the night. What is done is in the ledger, tool by tool: a batch that was killed
resumes with the tool it was at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any

from ratchet.config.workflow_settings import Evolution
from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError, RunStatus, Superseded
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.runs import Run, list_runs
from ratchet.ledger.tools import ToolRow, VersionRow, changed_tools, find_tool, versions_by_id
from ratchet.ledger.usage import total
from ratchet.runtime import JobContext, complete_run, enter_run, run_step
from ratchet.workflows.evolution.evolver import Announce, announce, evolve_one, failing_examples
from ratchet.workflows.evolution.health import (
    EvolveDecision,
    note_look,
    recent_scores,
    should_evolve,
    tool_of,
)
from ratchet.workflows.evolution.outcome import EvolveRequest, given_up
from ratchet.workflows.evolution.parts import parts_of
from ratchet.workflows.evolution.requests import OPTIMISE_RUN, start_batch
from ratchet.workflows.operations import RUN_KIND

LEAST_CALLS = 10
GOOD = 0.75
# The most used ones are looked into; a tool that is hardly used is worth little.
_MOST_LOOKED_AT = 200
_MOST_TOOLS = 100_000
_LATELY = 50


@dataclass(frozen=True, slots=True)
class Opportunity:
    """A tool that could be better. `value` is how often it is used times what it lacks; one that is `broken`, since it
    fails its own examples, comes before all others."""

    tool: str
    folder: str
    calls: int
    quality: float
    value: float
    why: str
    broken: bool = False


def find_opportunities(tx: Transaction, settings: Evolution, now: int) -> list[Opportunity]:
    """Tools that are broken, and tools in use that are not good or have become worse, the most valuable first."""
    found = [_opportunity(tx, tool, version, settings, now) for tool, version in _candidates(tx)]
    return sorted(
        (each for each in found if each is not None),
        key=lambda each: (not each.broken, -each.value, each.tool),
    )


def _in_use(tx: Transaction) -> list[tuple[ToolRow, VersionRow]]:
    known = changed_tools(tx, after=0, limit=_MOST_TOOLS)
    tools = [tool for tool in known if not tool.removed and tool.pinned_id is None]
    versions = versions_by_id(tx, [tool.current_id for tool in tools if tool.current_id is not None])
    return [(tool, versions[tool.current_id]) for tool in tools if tool.current_id in versions]


def _candidates(tx: Transaction) -> Sequence[tuple[ToolRow, VersionRow]]:
    pairs = _in_use(tx)
    broken = [pair for pair in pairs if pair[1].examples_failed]
    used = [pair for pair in pairs if pair[1].calls >= LEAST_CALLS and not pair[1].examples_failed]
    return [*broken, *sorted(used, key=lambda pair: -pair[1].calls)[:_MOST_LOOKED_AT]]


async def try_untried(job: JobContext) -> None:
    """Run the examples of tools that can be rewritten and whose examples were never run."""
    with job.ledger.read() as tx:
        untried = [pair for pair in _in_use(tx) if pair[1].examples_failed is None]
    for row, version in untried:
        try:
            tool = tool_of(row, version)
            parts_of(tool)
        except RatchetError:
            continue
        await failing_examples(job, version, tool)


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
    decision = should_evolve(tx, tool, settings, now)
    if version.examples_failed:
        if not decision.yes:
            return None
        why = decision.why
        return Opportunity(tool.name, tool.folder, version.calls, 0.0, version.calls, why, broken=True)
    if not scores:
        return None
    quality = fmean(scores)
    if quality < GOOD and not decision.yes:
        decision = EvolveDecision(
            True, f"{version.calls} calls with a mean score of {quality:.2f}, below {GOOD:g}"
        )
    if not decision.yes:
        return None
    value = version.calls * (1.0 - quality)
    return Opportunity(tool.name, tool.folder, version.calls, quality, value, decision.why)


async def optimise(job: JobContext, tell: Announce = announce) -> object:
    """The handler of `workflow.optimise`: a batch, or what a schedule fires, which starts one."""
    if job.job.run_id is None:
        return {"run_id": _started(job)}
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    plan = await run_step(job, "plan", lambda _: _planned(job, run))
    done: list[dict[str, Any]] = []
    stopped = "every tool that was worth it was tried"
    for wanted in plan["opportunities"]:
        job.give_way()
        left = partial(_seconds_left, run, plan)
        if left() <= 0:
            stopped = "the time is over"
            break
        work = partial(_evolve, job, run, wanted, tell, left)
        done.append(await run_step(job, f"evolve {wanted['tool']}", work))
        if done[-1]["exhausted"]:
            stopped = done[-1]["why"]
            break
    return _end(job, run, plan, done, stopped)


def _started(job: JobContext) -> int:
    """The run of a batch that a schedule asked for, once for each time it fired."""
    with job.write() as tx:
        for run in list_runs(tx, kind=RUN_KIND, name=OPTIMISE_RUN, limit=_LATELY):
            if run.spec.get("job") == job.job.id:
                return run.id
        return start_batch(tx, job.runtime, {**job.payload, "job": job.job.id})


async def _planned(job: JobContext, run: Run) -> dict[str, Any]:
    """What is worth doing now, and when this began. Every tool on the list counts as looked at."""
    settings = job.runtime.settings.workflows.evolution
    await try_untried(job)
    with job.write() as tx:
        found = find_opportunities(tx, settings, tx.now)[: run.spec.get("most")]
        for each in found:
            tool = find_tool(tx, each.tool, folder=each.folder)
            if tool is not None:
                note_look(tx, tool, EvolveDecision(True, each.why))
        return {"begun_at": tx.now, "opportunities": [asdict(each) for each in found]}


def _seconds_left(run: Run, plan: dict[str, Any]) -> float:
    seconds = run.spec.get("seconds")
    return math.inf if seconds is None else float(plan["begun_at"] / 1000 + seconds - time.time())


async def _evolve(
    job: JobContext,
    run: Run,
    wanted: dict[str, Any],
    tell: Announce,
    seconds_left: Callable[[], float],
    _attempt: int,
) -> dict[str, Any]:
    wish = EvolveRequest(
        wanted["tool"],
        wanted["folder"],
        why=wanted["why"],
        engine=run.spec.get("engine"),
        model=run.spec.get("model"),
        step=f"{wanted['tool']}: ",
    )
    try:
        evolved = await evolve_one(job, run, wish, tell=tell, seconds_left=seconds_left)
    except (Conflict, Misuse, NotFound) as error:
        if isinstance(error, Superseded):
            raise
        # What one tool cannot have must not keep the others from it.
        evolved = given_up(wish, [], str(error), exhausted=False)
    return evolved.data()


def _end(
    job: JobContext, run: Run, plan: dict[str, Any], done: list[dict[str, Any]], stopped: str
) -> dict[str, Any]:
    """Complete the run; one in which nothing could be tried at all has failed."""
    with job.write() as tx:
        result = {
            "tools": done,
            "promoted": [each["tool"] for each in done if each["promoted"]],
            "left": [each["tool"] for each in plan["opportunities"][len(done) :]],
            "stopped": stopped,
            "spent_usd": total(tx, "run", run.id).cost_usd,
        }
        if done and not any(each["judged"] for each in done):
            change_run(tx, run.id, RunStatus.FAILED, reason=done[-1]["why"], result=result)
        else:
            complete_run(tx, run.id, result)
    return result
