"""What can be done with a run in the state that it is in."""

from __future__ import annotations

from ratchet.kernel import IllegalTransition, RunStatus
from ratchet.kernel.status import check_transition

_RESUMED = (RunStatus.PAUSED, RunStatus.BLOCKED)


def run_controls(run_id: int, status: RunStatus) -> dict[str, str | None]:
    """For each action why it cannot be done now; None where it can."""
    return {
        "pause": _why(run_id, status, RunStatus.PAUSED),
        "resume": (
            None
            if status in _RESUMED
            else f"run {run_id} is {status}; only a {' or '.join(_RESUMED)} run can be resumed"
        ),
        "cancel": _why(run_id, status, RunStatus.CANCELLED),
    }


def _why(run_id: int, status: RunStatus, wanted: RunStatus) -> str | None:
    try:
        check_transition("run", run_id, status, wanted)
    except IllegalTransition as error:
        return str(error)
    return None
