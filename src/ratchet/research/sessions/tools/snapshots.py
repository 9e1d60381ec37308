"""Reading what other trials were: their files, and how two of them differ."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ratchet.engines import Tool
from ratchet.research.measuring.recipe import Recipe
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.sessions.recipe import recipe_path
from ratchet.research.sessions.sitting import Sitting
from ratchet.research.sessions.tools.forms import OFFSET, TRIAL, form, page, row, text, told

# So that an answer stays below what is shown of one at once.
_SHOWN = 12_000
_NAMES = 200


def read_snapshot(sitting: Sitting) -> Tool:
    async def use(given: Mapping[str, Any]) -> str:
        found = sitting.snapshot(trial_number(given["exp_id"]))
        if "path" not in given:
            return told({**row(found.trial), "files": await asyncio.to_thread(_names, sitting, found.commit)})
        path = recipe_path(sitting.task, given["path"])
        content = await asyncio.to_thread(sitting.repository.read_file, found.commit, path)
        shown = page(content.decode(errors="replace"), given.get("offset", 0), size=_SHOWN)
        return told({**row(found.trial), "path": path, **shown})

    return Tool(
        "read_snapshot",
        "Read a file of the recipe as any trial had it, kept or not. Without a path it tells which files there are.",
        form({"exp_id": TRIAL}, {"path": text("a file of the recipe", longest=1000), "offset": OFFSET}),
        use,
    )


def diff_snapshots(sitting: Sitting) -> Tool:
    async def use(given: Mapping[str, Any]) -> str:
        old, new = (sitting.snapshot(trial_number(given[name])) for name in ("exp_a", "exp_b"))
        changes = await asyncio.to_thread(sitting.repository.changes, old.commit, new.commit)
        diff = await asyncio.to_thread(sitting.repository.diff, old.commit, new.commit)
        paths = [change.path for change in changes]
        shown = page(diff, given.get("offset", 0), size=_SHOWN)
        return told({"exp_a": row(old.trial), "exp_b": row(new.trial), "files": paths[:_NAMES], **shown})

    return Tool(
        "diff_snapshots",
        "How the files of two trials differ, as a patch from exp_a to exp_b.",
        form({"exp_a": TRIAL, "exp_b": TRIAL}, {"offset": OFFSET}),
        use,
    )


def _names(sitting: Sitting, commit: str) -> list[str]:
    return list(Recipe(sitting.task.recipe).within(sitting.repository.list_files(commit)))[:_NAMES]
