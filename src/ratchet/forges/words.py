"""What the words of forges for the state of a check mean here."""

from __future__ import annotations

from ratchet.forges.forge import CheckState

_PASSED = ("success", "passed", "ok")
_FAILED = ("failure", "failed", "error", "cancelled", "canceled", "timed_out", "action_required")
_PENDING = ("pending", "queued", "requested", "in_progress", "waiting", "running", "created", "scheduled")
_BOTH = {
    **dict.fromkeys(_PASSED, CheckState.PASSED),
    **dict.fromkeys(_FAILED, CheckState.FAILED),
    **dict.fromkeys(_PENDING, CheckState.PENDING),
    "skipped": CheckState.NEUTRAL,
}
_GITHUB = {
    **_BOTH,
    # GitHub itself takes it for a success.
    "neutral": CheckState.PASSED,
    "startup_failure": CheckState.FAILED,
    # It was never finished and nobody will.
    "stale": CheckState.FAILED,
    "expected": CheckState.PENDING,
    # Without a conclusion that says nothing yet.
    "completed": CheckState.PENDING,
}
_GITLAB = {
    **_BOTH,
    "preparing": CheckState.PENDING,
    "waiting_for_resource": CheckState.PENDING,
    "waiting_for_callback": CheckState.PENDING,
    "canceling": CheckState.PENDING,
    # Somebody has to press a button first.
    "manual": CheckState.PENDING,
}
CANCELLED = frozenset({"cancelled", "canceled"})


def github_state(word: str | None) -> CheckState | None:
    """Nothing for a word that is not known."""
    return None if word is None else _GITHUB.get(word.lower())


def gitlab_state(word: str | None, *, may_fail: bool = False) -> CheckState | None:
    """A job that may fail has not failed its pipeline."""
    state = None if word is None else _GITLAB.get(word.lower())
    return CheckState.NEUTRAL if state is CheckState.FAILED and may_fail else state
