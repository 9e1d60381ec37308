"""The directory in which a version is changed, before anything in it counts."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ratchet.agentkit import StateStore
from ratchet.agents.changing.work import Work
from ratchet.agents.contract import LOGS, STATE
from ratchet.agents.prompts import MESSAGE_FILE
from ratchet.agents.trees import begin_tree, check_out
from ratchet.workspaces.removal import remove_tree

_LOG_BYTES = 256 * 1024
_MOST_LOGS = 16


def stage(work: Work, staging: Path, commit: str | None, state: bytes | None) -> None:
    """A fresh copy of a version with this state, to be changed or looked at. Nothing of an earlier one is left."""
    remove_tree(staging)
    if commit is None:
        begin_tree(staging)
    else:
        check_out(work.repository, commit, staging)
    if state is not None:
        (staging / STATE).write_bytes(state)
    (staging / LOGS).mkdir(exist_ok=True)


def prepare(work: Work, staging: Path) -> bytes | None:
    """Copy the version, its state as it is now, and the end of its logs. The state, as it was copied.

    The first version has nothing to be copied.
    """
    state = None
    if work.parent is None:
        stage(work, staging, None, None)
    else:
        live = work.place.version(work.parent)
        state = json.dumps(StateStore(live).read(), indent=2, ensure_ascii=False).encode() + b"\n"
        stage(work, staging, work.parent, state)
        _copy_logs(live / LOGS, staging / LOGS)
    if len(work.message) > work.settings.prompt_chars:
        (staging / LOGS / MESSAGE_FILE).write_text(work.message)
    return state


def last_change(work: Work) -> int:
    """The number of the newest change of the live state; 0 where there is none."""
    if work.parent is None:
        return 0
    newest = StateStore(work.place.version(work.parent)).history(limit=1)
    return newest[0].number if newest else 0


def _copy_logs(source: Path, target: Path) -> None:
    """The end of each log. A running agent writes there, so nothing that is not a plain file is followed."""
    if not source.is_dir():
        return
    for entry in sorted(os.scandir(source), key=lambda each: each.name)[:_MOST_LOGS]:
        if entry.is_file(follow_symlinks=False):
            with open(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as log:  # noqa: PTH123
                log.seek(max(0, entry.stat(follow_symlinks=False).st_size - _LOG_BYTES))
                (target / entry.name).write_bytes(log.read(_LOG_BYTES))


def set_aside(work: Work, attempt_id: int) -> str | None:
    """Keep what did not pass for people to look at, and nothing of it in the way. Its path."""
    staging = work.place.staging(work.parent)
    if not staging.is_dir():
        return None
    work.place.quarantine.mkdir(exist_ok=True)
    kept = work.place.quarantine / f"run-{work.run.id}-attempt-{attempt_id}"
    remove_tree(kept)
    staging.rename(kept)
    # Whoever looks at it with git must not run what a session may have put there.
    remove_tree(kept / ".git")
    by_age = sorted(work.place.quarantine.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in by_age[work.settings.quarantines :]:
        remove_tree(old)
    return str(kept)
