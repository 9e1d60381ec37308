"""What becomes of a protocol when people deal with its pull request."""

from __future__ import annotations

from typing import Any

from ratchet.forges import ForgeEvent, PullRequestState
from ratchet.kernel import RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.protocols import Protocol, change_protocol
from ratchet.runtime import Runtime
from ratchet.runtime.runs import end_run, halt_run

_R = RunStatus
# The way to completed, from wherever a protocol stands.
_WAYS = {
    _R.PENDING: (_R.RUNNING, _R.COMPLETED),
    _R.PLANNING: (_R.PLANNED, _R.RUNNING, _R.COMPLETED),
    _R.PLANNED: (_R.RUNNING, _R.COMPLETED),
    _R.RUNNING: (_R.COMPLETED,),
    _R.PAUSED: (_R.RUNNING, _R.COMPLETED),
    _R.BLOCKED: (_R.RUNNING, _R.COMPLETED),
}


def settle_pull_request(tx: Transaction, runtime: Runtime, protocol: Protocol, event: ForgeEvent) -> str:
    """Do what the pull request of a live protocol asks for; what became of it, in a few words."""
    known: dict[str, Any] = protocol.pull_request if isinstance(protocol.pull_request, dict) else {}
    number = known.get("number")
    if number is not None and event.pull_request is not None and number != event.pull_request:
        return f"the protocol's pull request is {number}"
    _remember(tx, protocol, known, event)
    word = "merge request" if event.provider == "gitlab" else "pull request"
    named = f"{word} {event.pull_request}" if event.pull_request else f"the {word}"
    if event.merged:
        _tell(
            tx,
            protocol,
            event,
            "mr_merged" if event.provider == "gitlab" else "pr_merged",
            f"{named} was merged",
        )
        if protocol.rests_on_recording:
            reason = f"{named} was merged, but the protocol rests on a recording, so it cannot be completed"
            halt_run(tx, runtime, protocol.run_id, RunStatus.BLOCKED, reason=reason)
            return "blocked"
        end_run(tx, runtime, protocol.run_id, *_WAYS[protocol.status], reason=f"{named} was merged")
        return "completed"
    if event.closed:
        reason = f"{named} was closed without being merged; open it again and resume, or cancel the protocol"
        halt_run(tx, runtime, protocol.run_id, RunStatus.BLOCKED, reason=reason)
        return "blocked"
    return "recorded"


def _remember(tx: Transaction, protocol: Protocol, known: dict[str, Any], event: ForgeEvent) -> None:
    closed = PullRequestState.CLOSED if event.closed else PullRequestState.OPEN
    told = {
        "provider": event.provider,
        "number": event.pull_request,
        "url": event.url,
        "state": str(PullRequestState.MERGED if event.merged else closed),
        "draft": event.draft,
    }
    kept = {name: value for name, value in told.items() if value is not None}
    if kept != {name: known.get(name) for name in kept}:
        change_protocol(tx, protocol.run_id, pull_request={**known, **kept})


def _tell(tx: Transaction, protocol: Protocol, event: ForgeEvent, type: str, message: str) -> None:
    tx.event(
        type,
        run_id=protocol.run_id,
        project_id=protocol.project_id,
        message=message,
        data={"spec_hash": protocol.spec_hash, "number": event.pull_request, "url": event.url},
    )
