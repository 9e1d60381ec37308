"""`ratchet queue list`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import show_list
from ratchet.operations import record
from ratchet.runtime import JobStatus, QueueState, list_queues
from ratchet.runtime.queues import configured_rules

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.runtime.limits import QueueRule

_OPEN = (JobStatus.QUEUED, JobStatus.SCHEDULED, JobStatus.WAITING, JobStatus.STARTED)
_ENDED = (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED)


@command(
    "list",
    examples=["ratchet queue list", "ratchet queue list --json | jq '.[].counts.failed'"],
    see=["queue jobs", "processes"],
)
@click.pass_obj
def list_(session: Session) -> None:
    """List queues and how many jobs they hold.

    There is always the queue `default`; others come from the settings, as [queues.NAME] with their limits.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_queues(tx, _rules(session))
    show_list(
        session,
        found,
        {
            "queue": lambda queue: queue.name,
            "state": lambda queue: "paused" if queue.paused else "active",
            "limits": _limits,
            **{str(status): _counting(status) for status in (*_OPEN, *_ENDED)},
        },
        record=_queue_record,
        empty="There are no queues.",
    )


def _rules(session: Session) -> dict[str, QueueRule]:
    return configured_rules(session.load().settings)


def _queue_record(queue: QueueState) -> dict[str, Any]:
    return {**record(queue), "counts": {str(status): queue.counts.get(status, 0) for status in JobStatus}}


def _counting(status: JobStatus) -> Any:
    return lambda queue: queue.counts.get(status, 0)


def _limits(queue: QueueState) -> str | None:
    parts = []
    if queue.concurrency is not None:
        parts.append(f"{queue.concurrency} at once")
    if queue.rate_limit is not None:
        parts.append(f"{queue.rate_limit} in {queue.rate_seconds:g} s")
    return ", ".join(parts) or None
