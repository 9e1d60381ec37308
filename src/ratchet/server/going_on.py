"""What is going on in all flows, and how far each run is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratchet.kernel import NotFound, RunStatus, StepStatus
from ratchet.ledger import Event, Filter, Run, Transaction
from ratchet.ledger.attention import StepCounts, count_steps, open_runs
from ratchet.ledger.events import latest
from ratchet.ledger.research import get_standing, list_specialists
from ratchet.ledger.runs import list_runs
from ratchet.server import shapes
from ratchet.server.service import Access

KINDS = ("protocol", "research", "workflow", "agent")
MOVING = (RunStatus.PENDING, RunStatus.PLANNING, RunStatus.PLANNED, RunStatus.RUNNING)
STANDING = (RunStatus.PAUSED, RunStatus.BLOCKED)
_MOST = 20
_SHOWN = 200
# What people want to hear of; what sessions say and servers do meanwhile would drown it.
_OF_RUNS = ("created", "completed", "failed", "blocked", "cancelled", "paused")
_OF_AGENTS = ("created", "failed", "feedback", "promoted", "rolled_back", "quarantined", "crashed", "deleted")
_OF_TOOLS = ("promoted", "refused", "rolled_back")
_TOLD = (
    *("approval.*", "project.*", "budget.*", "setup_*"),
    *(f"run.{what}" for what in _OF_RUNS),
    *(f"agent.{what}" for what in _OF_AGENTS),
    *(f"tool.{what}" for what in _OF_TOOLS),
)


def going_on(api: Access, tx: Transaction) -> list[dict[str, Any]]:
    """The runs that move, newest first, with how far they are; not those that the caller may not see."""
    return _with_progress(tx, visible_runs(api, tx, open_runs(tx, *MOVING, limit=_MOST))[:_MOST])


def ended(api: Access, tx: Transaction, *, limit: int) -> list[dict[str, Any]]:
    """Those of the newest runs that are over, with how far they came; not those that the caller may not see."""
    found = visible_runs(api, tx, list_runs(tx, limit=_MOST))
    return _with_progress(tx, [run for run in found if run.status not in (*MOVING, *STANDING)][:limit])


def _with_progress(tx: Transaction, found: Sequence[Run]) -> list[dict[str, Any]]:
    counted = count_steps(tx, [run.id for run in found if run.kind != "research"])
    return [
        {
            **shapes.Run.model_validate(run).model_dump(exclude={"spec", "result"}),
            "progress": progress(tx, run, counted.get(run.id)),
        }
        for run in found
    ]


def visible_runs(api: Access, tx: Transaction, found: Sequence[Run]) -> list[Run]:
    hidden = api.caller.hidden(tx, (run.project_id for run in found))
    return [run for run in found if run.project_id not in hidden]


def progress(tx: Transaction, run: Run, counts: StepCounts | None) -> dict[str, Any]:
    """How far a run is: `done` of `total`, where that is known, and the same in words."""
    if run.kind == "research":
        return _of_research(tx, run)
    told = run.spec.get("message") if run.kind == "agent" and isinstance(run.spec, dict) else None
    if counts is None or counts.total == 0:
        return {"done": None, "total": None, "words": str(told) if told else "no steps yet"}
    done = counts.by_status[StepStatus.COMPLETED]
    steps = f"{counts.total}{'' if counts.whole else ' or more'} step{'' if counts.total == 1 else 's'}"
    return {
        "done": done,
        "total": counts.total if counts.whole else None,
        "words": str(told) if told else f"{done} of {steps}",
    }


def lately(api: Access, tx: Transaction, *, limit: int) -> list[Event]:
    """What happened last, in large steps."""
    found = [
        event for family in _TOLD for event in latest(tx.connection, where=Filter(type=family), limit=limit)
    ]
    hidden = api.caller.hidden(tx, (event.project_id for event in found))
    seen = [event for event in found if event.project_id not in hidden]
    return sorted(seen, key=lambda event: event.id, reverse=True)[:limit]


def _of_research(tx: Transaction, run: Run) -> dict[str, Any]:
    try:
        standing = get_standing(tx, run.id)
    except NotFound:
        return {"done": None, "total": None, "words": "no trials yet"}
    wanted = run.spec.get("trials") if isinstance(run.spec, dict) else None
    total = wanted if isinstance(wanted, int) and wanted > 0 else None
    best = "" if standing.best_score is None else f", best {standing.score_field} {standing.best_score:.6g}"
    of = "" if total is None else f" of {total}"
    noun = "trial" if (total or standing.trials) == 1 else "trials"
    words = f"{standing.trials}{of} {noun}{best}{_failing(tx, run)}"
    return {"done": standing.trials, "total": total, "words": words}


def _failing(tx: Transaction, run: Run) -> str:
    """What the sessions of a run fail of, which would look like work otherwise."""
    failing = [each for each in list_specialists(tx, run.id) if each.failures and each.problem]
    told = (f"{each.name} failed {each.failures}×: {str(each.problem)[:_SHOWN]}" for each in failing)
    return f"; {'; '.join(told)}" if failing and run.status in MOVING else ""
