"""What only the task itself can find wrong with a candidate."""

from __future__ import annotations

from pathlib import Path

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import Refused, TaskAdapter
from ratchet.research.measurement import Unmeasured


def looks_itself(task: TaskAdapter) -> bool:
    """Whether its class does more than every task does, so that it needs files to look at."""
    kind = type(task)
    return kind.preflight is not TaskAdapter.preflight or kind.size_check is not TaskAdapter.size_check


def look(task: TaskAdapter, directory: Path) -> None:
    """Let the task look at a checkout. Raises `Unmeasured`."""
    try:
        size = task.size_check(directory)
        if size.verdict == "block":
            raise Refused(
                TrialStatus.SIZE_BLOCKED,
                f"it has {size.total_bytes:,} bytes; {size.limit_bytes:,} are allowed",
            )
        task.preflight(directory)
    except Refused as refused:
        if refused.status.valid or refused.status is TrialStatus.HARNESS_ABORT:
            reason = f"the task refuses a candidate as {refused.status}, which is no reason: {refused.reason}"
            raise Unmeasured(TrialStatus.INFRA_ERROR, reason) from None
        raise Unmeasured(refused.status, refused.reason) from None
    except Exception as error:
        reason = f"the task's own preflight broke: {type(error).__name__}: {error}"
        raise Unmeasured(TrialStatus.INFRA_ERROR, reason) from error
