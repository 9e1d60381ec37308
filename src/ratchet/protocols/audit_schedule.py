"""The schedule of audits that the settings ask for."""

from __future__ import annotations

from ratchet.kernel import Misuse, NotFound
from ratchet.protocols.jobs import AUDIT
from ratchet.runtime import Runtime, get_schedule, read_when, remove_schedule
from ratchet.runtime.job import BACKGROUND

NAME = "protocols.audit"
LINE = "spec-audit"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# What comes at even times in cron: seconds in between, and the expression.
_EVEN = (
    (30, "*/30 * * * * *"),
    *((n * _MINUTE, f"*/{n} * * * *") for n in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)),
    *((n * _HOUR, f"0 */{n} * * *") for n in (1, 2, 3, 4, 6, 8, 12)),
    (_DAY, "0 0 * * *"),
)


def every(seconds: float) -> str:
    """When something comes that is wanted every so many seconds: at even times, not more often, but daily at least."""
    if not seconds > 0:
        raise Misuse(f"an interval must be above 0 seconds, not {seconds!r}")
    return next((cron for even, cron in _EVEN if even >= seconds), _EVEN[-1][1])


def keep_schedule(runtime: Runtime) -> None:
    """Have audits come as often as `protocols.audit_minutes` says, or not at all. One that a person paused stays so."""
    minutes = runtime.settings.protocols.audit_minutes
    wanted = None if minutes is None else read_when(every(minutes * _MINUTE)).cron
    with runtime.ledger.read() as tx:
        try:
            there = get_schedule(tx, NAME).cron
        except NotFound:
            there = None
    if there == wanted:
        return
    with runtime.ledger.write() as tx:
        if wanted is not None:
            runtime.put_schedule(tx, NAME, wanted, AUDIT, {"unfinished": True}, key=LINE, priority=BACKGROUND)
            return
        try:
            remove_schedule(tx, NAME)
        except NotFound:
            # Another process that starts at this moment was quicker.
            return
