"""Taking a delivery that is known to be from the project's forge: once, for the protocol that it is about."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ratchet.forges import CheckState, EventKind, ForgeEvent, Trouble
from ratchet.forges.payload import CANCELLED
from ratchet.kernel import JobId, RunId, StepStatus
from ratchet.ledger import Transaction
from ratchet.ledger.ci import (
    CiCheck,
    add_delivery,
    checks_of,
    close_delivery,
    forget_deliveries,
    put_check,
    runs_of_commit,
)
from ratchet.ledger.projects import Project
from ratchet.ledger.protocol_steps import ProtocolStep, list_protocol_steps
from ratchet.ledger.protocols import Protocol, find_protocol, get_protocol
from ratchet.ledger.runs import lock_run
from ratchet.protocols.ci.pull_requests import settle_pull_request
from ratchet.protocols.ci.settling import hold, settle_commit, settle_steps
from ratchet.runtime import Runtime
from ratchet.runtime.runs import lock_jobs

RECORDED, REPEATED, NO_PROTOCOL = "recorded", "repeated", "no protocol"
_KEPT_MILLISECONDS = 30 * 24 * 3600 * 1000
# With each delivery a few old ones are forgotten: more than come, so that they do not pile up.
_BITE = 20


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a delivery: a word for the record, the protocol, and the carrier that was called."""

    outcome: str
    run_id: RunId | None = None
    job_id: JobId | None = None


def take_delivery(
    tx: Transaction, runtime: Runtime, project: Project, event: ForgeEvent, *, run_id: int | None = None
) -> Taken:
    """Record what a forge says and settle what waited for it. The same delivery again changes nothing.

    `run_id` names the protocol where the delivery does not. A protocol that has ended stays as it is.
    """
    number = add_delivery(tx, project.id, event.provider, event.delivery, event=event.name, outcome=RECORDED)
    if number is None:
        return Taken(REPEATED)
    forget_deliveries(tx, before=tx.now - _KEPT_MILLISECONDS, most=_BITE)
    found = _protocol(tx, project, event, run_id)
    taken = Taken(NO_PROTOCOL) if found is None else _take(tx, runtime, project, found, event)
    close_delivery(tx, number, run_id=taken.run_id, outcome=taken.outcome)
    return taken


def _protocol(tx: Transaction, project: Project, event: ForgeEvent, run_id: int | None) -> Protocol | None:
    if run_id is not None:
        return get_protocol(tx, run_id)
    if event.kind is EventKind.CHECK and event.commit is not None:
        of_commit = runs_of_commit(tx, project.id, event.commit)
        if of_commit:
            return get_protocol(tx, of_commit[-1])
    for branch in event.branches:
        for name in (branch, branch.removeprefix("refs/heads/")):
            found = find_protocol(tx, project.id, name)
            if found is not None:
                return found
    return None


def _take(tx: Transaction, runtime: Runtime, project: Project, found: Protocol, event: ForgeEvent) -> Taken:
    if event.kind is EventKind.PULL_REQUEST:
        # Jobs first: whoever works on one holds it, and may want what comes next.
        lock_jobs(tx, found.run_id)
    hold(tx, project.id)
    lock_run(tx, found.run_id)
    protocol = get_protocol(tx, found.run_id)
    steps = list_protocol_steps(tx, protocol.run_id)
    about = _step(protocol, steps, event)
    _tell(tx, protocol, about, event)
    if event.kind is EventKind.CHECK:
        return _take_check(tx, runtime, project, protocol, about, event)
    if event.kind is EventKind.PULL_REQUEST and not protocol.status.final:
        return Taken(settle_pull_request(tx, runtime, protocol, event), protocol.run_id)
    return Taken(RECORDED, protocol.run_id)


def _take_check(
    tx: Transaction,
    runtime: Runtime,
    project: Project,
    protocol: Protocol,
    about: ProtocolStep | None,
    event: ForgeEvent,
) -> Taken:
    commit = event.commit or _commit_of(protocol, about)
    if commit is None:
        return Taken("no commit that CI could be about", protocol.run_id)
    known = {each.name: each for each in checks_of(tx, project.id, [commit])}
    for name, state, outcome, at, trouble in _words(event):
        # What is pushed next has CI give up what came before; that says nothing about it.
        superseded = outcome in CANCELLED and protocol.pushed not in (None, commit)
        put_check(
            tx,
            project.id,
            commit,
            name,
            provider=event.provider,
            state=str(CheckState.NEUTRAL if superseded else state),
            # A clock that is ahead must not make a word the last one for ever.
            at=tx.now if at is None else min(at, tx.now),
            url=event.url,
            detail=_detail(known.get(name), state, {**asdict(trouble), "outcome": outcome}),
        )
    if protocol.status.final:
        return Taken(f"the protocol is {protocol.status}", protocol.run_id)
    if about is not None and commit == _stand_in(about):
        called = settle_steps(tx, runtime, project, protocol, commit, [about])
    else:
        called = settle_commit(tx, runtime, project, commit)
    return Taken(RECORDED, protocol.run_id, called)


def _detail(known: CiCheck | None, state: CheckState, said: dict[str, Any]) -> dict[str, Any]:
    """Where a check failed. What one word leaves out, such as the end of the log, an earlier one may have told."""
    told = {name: value for name, value in said.items() if value is not None}
    still = known is not None and known.state == state == CheckState.FAILED and isinstance(known.detail, dict)
    return {**known.detail, **told} if known is not None and still else told


def _words(event: ForgeEvent) -> list[tuple[str, CheckState, str | None, int | None, Trouble]]:
    """What a delivery says about checks: about one, and about those inside of it."""
    words: list[tuple[str, CheckState, str | None, int | None, Trouble]] = [
        (each.name, each.state, each.outcome, each.at, each.trouble) for each in event.jobs
    ]
    if event.check is not None and event.state is not None:
        words.append((event.check, event.state, event.outcome, event.at, event.trouble))
    return words


def _step(protocol: Protocol, steps: list[ProtocolStep], event: ForgeEvent) -> ProtocolStep | None:
    """The step that a delivery is about: that of its commit, else the newest that CI can have seen."""
    if event.commit is not None:
        return next((each for each in reversed(steps) if each.commit == event.commit), None)
    waiting = [each for each in steps if each.awaits_ci]
    pushed = [each for each in steps if each.commit is not None and each.commit == protocol.pushed]
    judged = [
        each
        for each in steps
        if each.status is StepStatus.NEEDS_QA or each.commit is not None or "ci" in (each.runtime_state or {})
    ]
    return next((group[-1] for group in (waiting, pushed, judged) if group), None)


def _commit_of(protocol: Protocol, about: ProtocolStep | None) -> str | None:
    """What CI is about when it does not say."""
    if about is None:
        return protocol.pushed
    return about.commit or (protocol.pushed if about.awaits_ci else None) or _stand_in(about)


def _stand_in(step: ProtocolStep) -> str:
    """What the checks of a step without a commit are kept under."""
    return f"step-{step.step_id}"


def _tell(tx: Transaction, protocol: Protocol, about: ProtocolStep | None, event: ForgeEvent) -> None:
    said: dict[str, Any] = {
        "provider": event.provider,
        "delivery": event.delivery,
        "branch": event.branch,
        "commit": event.commit,
        "check": event.check,
        "state": event.state and str(event.state),
        "outcome": event.outcome,
        "url": event.url,
        "pull_request": event.pull_request,
        "at": event.at,
    }
    told = " ".join(each for each in (event.check, event.outcome) if each) or event.name
    tx.event(
        event.name,
        run_id=protocol.run_id,
        project_id=protocol.project_id,
        step_id=None if about is None else about.step_id,
        message=told,
        data={name: value for name, value in said.items() if value is not None},
    )
