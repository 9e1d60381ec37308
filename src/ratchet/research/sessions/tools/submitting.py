"""Handing in the workspace as a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.engines import Tool
from ratchet.kernel import Misuse, RatchetError, TrialStatus, exp_id
from ratchet.ledger.trial_rows import Trial
from ratchet.research.sessions import inputs
from ratchet.research.sessions.sitting import Idea, Sitting
from ratchet.research.sessions.tools.forms import TRIAL, form, text, told

_REASON = 4000


def submit_trial(sitting: Sitting) -> Tool:
    async def use(given: Mapping[str, Any]) -> str:
        idea = Idea(
            hypothesis=inputs.hypothesis(given["hypothesis"]),
            expected_delta=inputs.expected_delta(given["expected_delta"]),
            notes=inputs.notes(given.get("notes", "")),
            parent=_parent(sitting, given.get("parent_exp")),
        )
        trial = await sitting.hand_in(idea)
        result = _result(sitting, trial)
        if trial.status is TrialStatus.KEEP and sitting.trials_left:
            result |= await _stand_on(sitting, trial)
        return told(result)

    expected = {
        "type": ["string", "number"],
        "description": "the change of the score that you expect, such as -0.02",
    }
    hypothesis = "one line of 10 to 300 characters: what you changed, and why it should help"
    return Tool(
        "submit_trial",
        "Hand in your workspace as it is. It is committed, measured, and kept if it is better than the best. "
        "This takes as long as a trial takes; the answer tells how it went.",
        form(
            {"hypothesis": text(hypothesis, longest=2000), "expected_delta": expected},
            {
                "notes": text("anything that whoever comes after you should know", longest=2 * inputs.NOTES),
                "parent_exp": {**TRIAL, "description": "the trial that your workspace stands on, as a check"},
            },
        ),
        use,
    )


def _parent(sitting: Sitting, claimed: str | int | None) -> int:
    if claimed is not None and (number := inputs.trial_number(claimed)) != sitting.parent:
        raise Misuse(
            f"your workspace stands on {exp_id(sitting.parent)}, not on {exp_id(number)}",
            hint="leave parent_exp out, or use rebase_to before you edit",
        )
    return sitting.parent


async def _stand_on(sitting: Sitting, trial: Trial) -> dict[str, Any]:
    """Go on from what was kept. The trial was made, whatever becomes of the workspace."""
    try:
        await sitting.rebase(sitting.snapshot(trial.number))
    except RatchetError as error:
        return {"workspace": f"cannot be used as it is: {error}. Use rebase_to."}
    return {"workspace_stands_on": trial.exp_id}


def _result(sitting: Sitting, trial: Trial) -> dict[str, Any]:
    if trial.status is not None and not trial.status.tried:
        return {
            "status": trial.status,
            "reason": (trial.reason or "")[:_REASON],
            "what_to_do": "The machine could not measure it; that says nothing about your idea. End the session.",
        }
    standing = sitting.standing()
    return {
        "exp_id": trial.exp_id,
        "status": trial.status,
        "score": trial.score,
        "delta_vs_best": trial.delta,
        "compared_to": None if trial.compared_to is None else exp_id(trial.compared_to),
        "reason": (trial.reason or "")[:_REASON],
        "best": {"exp_id": standing.best_exp_id, "score": standing.best_score},
        "trials_left_in_this_session": sitting.trials_left,
        "workspace_stands_on": exp_id(sitting.parent),
    }
