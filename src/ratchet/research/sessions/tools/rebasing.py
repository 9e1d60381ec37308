"""Going on from another trial."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ratchet.engines import Tool
from ratchet.kernel import Misuse
from ratchet.research.measuring.recipe import Recipe
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.sessions.sitting import Sitting, Snapshot
from ratchet.research.sessions.tools.forms import TRIAL, form, row, told


def rebase_to(sitting: Sitting) -> Tool:
    async def use(given: Mapping[str, Any]) -> str:
        found = sitting.snapshot(trial_number(given["exp_id"]))
        await asyncio.to_thread(_check_files, sitting, found)
        await sitting.rebase(found)
        return told({"ok": True, "workspace_stands_on": found.trial.exp_id, "parent": row(found.trial)})

    return Tool(
        "rebase_to",
        "Bring your workspace to the files of another trial, kept or not, 000 being the baseline. "
        "Your own edits are lost. The trials you submit from then on have that trial as their parent.",
        form({"exp_id": TRIAL}),
        use,
    )


def _check_files(sitting: Sitting, found: Snapshot) -> None:
    """Raises `Misuse` for a trial with changes that were never allowed: they would be taken over with its files."""
    changed = sitting.repository.changes(sitting.baseline_commit(), found.commit)
    recipe = Recipe(sitting.task.recipe)
    outside = [change.path for change in changed if not recipe.covers(change.path)]
    if outside:
        raise Misuse(
            f"trial {found.trial.exp_id} changed {outside[0]}, which is no part of the recipe",
            hint="choose another trial; this one can only be read",
        )
