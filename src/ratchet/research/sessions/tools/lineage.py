"""Reading the history of the run, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ratchet.engines import Tool
from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import Transaction
from ratchet.ledger.lessons import list_lessons
from ratchet.ledger.trial_pages import ancestors, children, kept_trials, latest_trials, near_misses
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import get_trial
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.sessions.sitting import Sitting
from ratchet.research.sessions.tools.forms import TRIAL, form, row, told

_PAGE = 20
_NOTES = 2000
_OF_A_TRIAL = ("trial", "ancestors", "children")
_PAGED = ("recent", "mine", "kept")
_VIEWS = (*_PAGED, "near_misses", *_OF_A_TRIAL, "lessons")


def read_lineage(sitting: Sitting) -> Tool:
    async def use(given: Mapping[str, Any]) -> str:
        view = given["view"]
        if view in _OF_A_TRIAL and "exp_id" not in given:
            raise Misuse(f"the view {view} is one of a trial", hint="give its exp_id")
        with sitting.read() as tx:
            if view == "lessons":
                return told(_lessons(tx, sitting, given.get("before")))
            if view == "trial":
                return told(_whole(get_trial(tx, sitting.run_id, trial_number(given["exp_id"]))))
            return told(_page(_trials(tx, sitting, view, given), goes_on=view in _PAGED))

    return Tool(
        "read_lineage",
        "Read the history of this run: `recent` trials, `mine`, those `kept`, `near_misses` (good scores that were "
        "not kept), one `trial` with all that is known of it, its `ancestors` and its `children`, and `lessons`. "
        f"A page has {_PAGE} rows; `before` reads the next one of those that say `next_before`.",
        form(
            {"view": {"type": "string", "enum": list(_VIEWS)}},
            {
                "exp_id": TRIAL,
                "before": {**TRIAL, "description": "the `next_before` of the page that you have read"},
            },
        ),
        use,
    )


def _trials(tx: Transaction, sitting: Sitting, view: str, given: Mapping[str, Any]) -> list[Trial]:
    run_id = sitting.run_id
    before = trial_number(given["before"]) if "before" in given else None
    number = trial_number(given["exp_id"]) if "exp_id" in given else 0
    views: dict[str, Callable[[], list[Trial]]] = {
        "recent": lambda: latest_trials(tx, run_id, before=before, limit=_PAGE),
        "mine": lambda: latest_trials(
            tx, run_id, specialist=sitting.specialist.name, before=before, limit=_PAGE
        ),
        "kept": lambda: kept_trials(tx, run_id, before=before, limit=_PAGE),
        "near_misses": lambda: near_misses(tx, run_id, sitting.task.direction, limit=_PAGE),
        "ancestors": lambda: ancestors(tx, run_id, number, limit=_PAGE),
        "children": lambda: children(tx, run_id, number, limit=_PAGE),
    }
    return views[view]()


def _page(found: list[Trial], *, goes_on: bool) -> dict[str, Any]:
    """The rows that tell something about an idea. The next page begins behind the last row, shown or not."""
    shown = [row(trial) for trial in found if trial.status is None or trial.status.tried]
    rest = {"next_before": found[-1].exp_id} if goes_on and len(found) == _PAGE else {}
    return {"trials": shown, **rest}


def _whole(trial: Trial) -> dict[str, Any]:
    if trial.status is not None and not trial.status.tried:
        raise NotFound("trial", trial.exp_id)
    return {
        **row(trial),
        "hypothesis": trial.hypothesis,
        "notes": trial.notes[:_NOTES],
        "reason": (trial.reason or "")[:_NOTES],
        # Not all that was measured: what is held out is not for those who search.
        "measurements": (trial.measurements or {}).get("means"),
        "wall_ms": trial.wall_ms,
    }


def _lessons(tx: Transaction, sitting: Sitting, before: str | int | None) -> dict[str, Any]:
    last = None if before is None else trial_number(before)
    found = list_lessons(tx, sitting.run_id, before=last, limit=_PAGE)
    shown = [{"specialist": each.specialist, "trial": each.trial, "lesson": each.text} for each in found]
    rest = {"next_before": found[-1].id} if len(found) == _PAGE else {}
    return {"lessons": shown, **rest}
