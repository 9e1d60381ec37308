"""Asking for a better tool, taking one back, and asking for a night of it."""

from __future__ import annotations

from typing import Any

from ratchet.kernel import BudgetPolicy, Conflict, Limits, Misuse, RunId
from ratchet.ledger import Transaction
from ratchet.ledger.tools import VersionRow, get_tool, roll_back
from ratchet.ledger.usage import set_budget
from ratchet.runtime import Runtime, start_run
from ratchet.runtime.job import BACKGROUND
from ratchet.tools.definition import full_name
from ratchet.workflows.evolution.looking import run_name
from ratchet.workflows.evolution.subject import choose_subject
from ratchet.workflows.kinds import EVOLVE, OPTIMISE

RUN_KIND = "workflow"
OPTIMISE_RUN = "optimise"


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
        return roll_back(tx, tool, reason=reason or "taken back on request")


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
        # It can wait; whatever somebody waits for goes first.
        priority=BACKGROUND,
    )
    if budget is not None:
        set_budget(tx, "run", run_id, Limits(cost_usd=budget), BudgetPolicy.STRICT)
    return run_id
