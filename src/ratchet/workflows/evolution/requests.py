"""Asking for a better tool, taking one back, and asking for a night of it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import BudgetPolicy, Conflict, Limits, Misuse, NotFound, RatchetError, RunId
from ratchet.ledger import Transaction
from ratchet.ledger.tools import (
    VersionRow,
    get_tool,
    promote_version,
    roll_back,
    tools_by_id,
    version_numbered,
)
from ratchet.ledger.usage import set_budget
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime, start_run
from ratchet.runtime.job import BACKGROUND
from ratchet.tools.definition import full_name, read_name
from ratchet.tools.registry import open_toolbox
from ratchet.workflows.evolution.health import note_look, run_name, should_evolve
from ratchet.workflows.evolution.subject import check_evolvable, choose_subject
from ratchet.workflows.jobs import EVOLVE, OPTIMISE
from ratchet.workflows.operations import RUN_KIND
from ratchet.workflows.profile import profile_workflow

OPTIMISE_RUN = "optimise"
_log = logger(__name__)


def evolve_tool(
    runtime: Runtime,
    tool_id: str,
    *,
    folder: str = "",
    engine: str | None = None,
    model: str | None = None,
    why: str | None = None,
    simulated: bool = False,
    actor: str,
    request_id: str | None = None,
) -> RunId:
    """Start a run that rewrites a tool. Runs of one tool come one after the other.

    Raises at once what would stop it: a tool that does not exist, is pinned, cannot be rewritten, or has no real input
    on record that a variant could be judged by.
    """
    settings = runtime.settings.workflows.evolution
    spec = {"tool": tool_id, "folder": folder, "engine": engine, "model": model, "why": why}
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        tool = get_tool(tx, tool_id, folder=folder)
        choose_subject(tx, tool, cases=settings.cases, low=settings.low)
        name = run_name(tool_id)
        return start_run(
            tx, runtime, EVOLVE, kind=RUN_KIND, name=name, spec=spec, simulated=simulated, line=name
        )


def roll_back_tool(
    runtime: Runtime,
    tool_id: str,
    *,
    folder: str = "",
    reason: str | None = None,
    actor: str,
    request_id: str | None = None,
) -> VersionRow:
    """Go back to the version that was in use before. Raises `Conflict` for a pinned tool and where there is none."""
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        tool = get_tool(tx, tool_id, folder=folder)
        if tool.pinned_id is not None:
            raise Conflict(
                f"the tool {tool_id} is pinned, so nothing may move it",
                hint=f"`ratchet tool unpin {full_name(tool_id, folder)}` lets it move again",
            )
        return roll_back(tx, tool, reason=reason or "rolled back on request")


def approve_version(runtime: Runtime, tool_id: str, version: str, *, folder: str = "", actor: str) -> None:
    """Promote a version that was refused only because it answers some input differently.

    Raises `Conflict` for one that was refused for another reason, or whose parent is not in use any more.
    """
    with runtime.ledger.write(actor=actor) as tx:
        tool = get_tool(tx, tool_id, folder=folder)
        incumbent = check_evolvable(tx, tool)
        found = version_numbered(tx, tool, version)
        if not found.approvable or found.parent_id != incumbent.id:
            raise Conflict(
                f"version {version} of {tool_id} cannot be approved: it is {found.status}"
                + (f", since {found.reason}" if found.reason else ""),
                hint="only a variant of the version in use that was better and differed in an answer can be",
            )
        reason = f"approved by {actor}: {found.reason}"
        promote_version(tx, tool, found, expected=incumbent.id, reason=reason)


def optimise_batch(
    runtime: Runtime,
    *,
    budget_usd: float | None = None,
    seconds: float | None = None,
    engine: str | None = None,
    model: str | None = None,
    most: int | None = None,
    simulated: bool = False,
    actor: str,
    request_id: str | None = None,
) -> RunId:
    """Start a run that makes the tools better that are worth it most, until the money or the time is gone."""
    wanted = {"budget_usd": budget_usd, "seconds": seconds, "engine": engine, "model": model, "most": most}
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        return start_batch(tx, runtime, wanted, simulated=simulated)


def start_batch(
    tx: Transaction, runtime: Runtime, wanted: dict[str, Any], *, simulated: bool = False
) -> RunId:
    """The run of a batch; `wanted` may also be the payload of a schedule."""
    unknown = wanted.keys() - {"budget_usd", "seconds", "engine", "model", "most", "job"}
    if unknown:
        raise Misuse(
            f"a batch knows no {', '.join(sorted(unknown))}",
            hint="it takes budget_usd, seconds, engine, model and most",
        )
    budget = wanted.get("budget_usd")
    if budget is None:
        budget = runtime.settings.workflows.evolution.budget_usd
    for name, value in {
        "budget_usd": budget,
        "seconds": wanted.get("seconds"),
        "most": wanted.get("most"),
    }.items():
        if value is not None and not value > 0:
            raise Misuse(f"{name} must be above 0, not {value!r}")
    spec = {**wanted, "budget_usd": budget}
    run_id = start_run(
        tx,
        runtime,
        OPTIMISE,
        kind=RUN_KIND,
        name=OPTIMISE_RUN,
        spec=spec,
        simulated=simulated,
        line=OPTIMISE_RUN,
        # It can wait; what a person waits for goes first.
        priority=BACKGROUND,
    )
    if budget is not None:
        set_budget(tx, "run", run_id, Limits(cost_usd=budget), BudgetPolicy.STRICT)
    return run_id


def evolve_what_declined(runtime: Runtime, tool_ids: Collection[int], *, actor: str) -> list[RunId]:
    """Start a rewriting for each of these tools that the rules call for, if the settings allow it."""
    settings = runtime.settings.workflows.evolution
    if not settings.auto:
        return []
    wanted = []
    with runtime.ledger.write(actor=actor) as tx:
        for row in tools_by_id(tx, sorted(tool_ids)).values():
            decision = should_evolve(tx, row, settings, tx.now)
            if decision.yes:
                # Remembered here and now, so that of two runs that end at once only one sees to it.
                note_look(tx, row, decision)
                wanted.append((row, decision.why))
    started = []
    for row, why in wanted:
        try:
            started.append(evolve_tool(runtime, row.name, folder=row.folder, why=why, actor=actor))
        except RatchetError as error:
            _log.warning("a tool that became worse is not rewritten", tool=row.name, error=str(error))
    return started


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tool by its id and the folder in which the ledger has it. `why` says why it was chosen, if it was not named."""

    tool: str
    folder: str = ""
    why: str | None = None

    @property
    def name(self) -> str:
        """The tool as a person writes it."""
        return full_name(self.tool, self.folder)


def choose_tool(runtime: Runtime, wanted: str) -> Chosen:
    """The tool that `wanted` names: by its id, as WORKFLOW/TOOL, or as the workflow whose tools are looked at.

    Raises `NotFound`, and `Conflict` for a workflow of which no tool can be made better.
    """
    tool, folder = read_name(wanted)
    if folder:
        return Chosen(tool, folder)
    with contextlib.closing(open_toolbox(runtime.ledger, runtime.settings, runtime.home)) as toolbox:
        try:
            return Chosen(toolbox.get(wanted).name)
        except NotFound as absent:
            return _of_workflow(runtime, wanted, absent)


def choose_of_workflow(runtime: Runtime, name: str) -> Chosen:
    """The tool of a workflow that is worth it most. Raises as `choose_tool` does."""
    with runtime.ledger.read() as tx:
        profile = profile_workflow(tx, name)
    advice = profile.evolve_next
    if advice is None:
        obstacles = "; ".join(each.obstacle for each in profile.advice if each.obstacle)
        raise Conflict(
            f"no tool of {name} can be made better" + (f": {obstacles}" if obstacles else ""),
            hint=f"`ratchet workflow profile {name}` shows where its time goes",
        )
    return Chosen(advice.tool, advice.folder, advice.why)


def _of_workflow(runtime: Runtime, name: str, absent: NotFound) -> Chosen:
    try:
        return choose_of_workflow(runtime, name)
    except NotFound:
        # Neither has it; a tool is what was asked for first, and its error knows what is near.
        raise absent from None
