"""A webhook comes in: which project it is about, whether that project's forge sent it, and then what it says.

A delivery is about the project whose repository it names. Where several projects work on one repository it belongs to
the one whose secret it is signed with. One that names no repository, such as the report of a CI script, must say in its
address which project or protocol it means. Nothing that it says counts before its signature is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ratchet.forges import CheckState, Delivery, ForgeEvent, ForgeEventKind, Trouble, UnsignedDelivery
from ratchet.forges.forge import CANCELLED
from ratchet.kernel import JobId, NotFound, RunId, StepStatus
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project, projects_of_remote
from ratchet.ledger.protocols import (
    CiCheck,
    Protocol,
    ProtocolStep,
    add_delivery,
    checks_of,
    close_delivery,
    find_protocol,
    forget_deliveries,
    get_protocol,
    list_protocol_steps,
    put_check,
    runs_of_commit,
)
from ratchet.ledger.runs import lock_run
from ratchet.projects.address import remote_key
from ratchet.projects.secrets import WEBHOOK_SECRET, read_secret
from ratchet.protocols.ci import hold, settle_commit, settle_steps
from ratchet.protocols.stream import settle_pull_request
from ratchet.runtime import Runtime
from ratchet.runtime.runs import lock_jobs


@dataclass(frozen=True, slots=True)
class ReceivedDelivery:
    """What the forge is answered, and the same in one word."""

    message: str
    outcome: str
    run_id: RunId | None = None
    job_id: JobId | None = None


def receive(
    runtime: Runtime,
    delivery: Delivery,
    *,
    project_id: int | None = None,
    run_id: int | None = None,
    request_id: str | None = None,
) -> ReceivedDelivery:
    """Take a delivery, or raise `MalformedDelivery`, `UnsignedDelivery` or `NotFound`."""
    require_proof(delivery)
    if project_id is None and run_id is None:
        event = delivery.read()
        projects = _senders(runtime, delivery, event)
    else:
        projects = [_named(runtime, delivery, project_id, run_id)]
        event = delivery.read()
        _check_repository(projects[0], event)
    if event.kind is ForgeEventKind.PING:
        return ReceivedDelivery("pong", "ping")
    if not projects:
        raise NotFound("project of the repository", event.repository or "that the delivery does not name")
    with runtime.ledger.write(actor=f"webhook:{delivery.provider}", request_id=request_id) as tx:
        for project in projects:
            taken = take_delivery(tx, runtime, project, event, run_id=run_id)
            if taken.outcome != NO_PROTOCOL:
                break
        if taken.outcome == NO_PROTOCOL and project_id is not None:
            raise NotFound(
                f"protocol of project {project_id} for branch", event.branch or "that is not named"
            )
    if taken.outcome == REPEATED:
        return ReceivedDelivery("already recorded", REPEATED)
    if taken.outcome == NO_PROTOCOL:
        # A forge that gets an error for each push to another branch would give up the webhook.
        return ReceivedDelivery("Webhook recorded; no protocol has this branch", "ignored")
    return ReceivedDelivery("Webhook recorded", "recorded", taken.run_id, taken.job_id)


def require_proof(delivery: Delivery) -> None:
    """Raise `UnsignedDelivery` for one that does not even claim to be signed. Its body is not looked at."""
    if not delivery.proof:
        raise UnsignedDelivery("the delivery is not signed", hint=_configure(delivery))


def _named(runtime: Runtime, delivery: Delivery, project_id: int | None, run_id: int | None) -> Project:
    """The project that the address names, if the delivery is signed with its secret."""
    with runtime.ledger.read() as tx:
        number = project_id
        if run_id is not None:
            number = get_protocol(tx, run_id).project_id
            if project_id not in (None, number):
                raise NotFound(f"protocol of project {project_id}", run_id)
        assert number is not None
        project = get_project(tx, number)
        return _signed(tx, runtime, delivery, [project])[0]


def _senders(runtime: Runtime, delivery: Delivery, event: ForgeEvent) -> list[Project]:
    """The projects of the repository that is named, with whose secret the delivery is signed.

    None for one that is signed with the secret of all projects, but is about none of them.
    """
    remote = None if event.repository is None else remote_key(event.repository)
    with runtime.ledger.read() as tx:
        projects = [] if remote is None else projects_of_remote(tx, remote)
        if projects:
            return _signed(tx, runtime, delivery, projects)
    shared = _shared(runtime)
    if shared is None or not delivery.is_signed_with(shared):
        raise UnsignedDelivery(
            "the delivery is signed with no secret that is known here", hint=_configure(delivery)
        )
    return []


def _signed(
    tx: Transaction, runtime: Runtime, delivery: Delivery, projects: Sequence[Project]
) -> list[Project]:
    """Those with whose secret it is signed: several, if they have none of their own. Raises when there is none."""
    shared = _shared(runtime)
    secrets = {each.id: read_secret(tx, runtime, each.id, WEBHOOK_SECRET) or shared for each in projects}
    found = [each for each in projects if delivery.is_signed_with(secrets[each.id] or "")]
    if found:
        return found
    if any(secrets.values()):
        raise UnsignedDelivery("the signature of the delivery is wrong", hint=_configure(delivery))
    raise UnsignedDelivery("there is no secret that webhooks are signed with", hint=_configure(delivery))


def _check_repository(project: Project, event: ForgeEvent) -> None:
    """Refuse what another repository sent to the address of this project."""
    remote = None if event.repository is None else remote_key(event.repository)
    # A project on a path has no repository on a forge that could be compared.
    own = project.remote if project.remote and not project.remote.startswith("/") else None
    if remote is not None and own is not None and remote != own:
        raise NotFound(f"repository {event.repository} in project", project.id)


def _shared(runtime: Runtime) -> str | None:
    secret = runtime.settings.protocols.webhook_secret
    return None if secret is None else secret.get_secret_value() or None


def _configure(delivery: Delivery) -> str:
    where = (
        "the secret of the webhook" if delivery.provider == "github" else "the secret token of the webhook"
    )
    return (
        f"give the project a secret `webhook_secret`, or set protocols.webhook_secret, and enter the same as {where}"
        f" on {'GitHub' if delivery.provider == 'github' else 'GitLab'}"
    )


RECORDED, REPEATED, NO_PROTOCOL = "recorded", "repeated", "no protocol"
_KEPT_MILLISECONDS = 30 * 24 * 3600 * 1000
# With each delivery a few old ones are forgotten: more than come, so that they do not pile up.
_BITE = 20


@dataclass(frozen=True, slots=True)
class TakenDelivery:
    """What became of a delivery: a word for the record, the protocol, and the carrier that was called."""

    outcome: str
    run_id: RunId | None = None
    job_id: JobId | None = None


def take_delivery(
    tx: Transaction, runtime: Runtime, project: Project, event: ForgeEvent, *, run_id: int | None = None
) -> TakenDelivery:
    """Record what a forge says and settle what waited for it. The same delivery again changes nothing.

    `run_id` names the protocol where the delivery does not. A protocol that has ended stays as it is.
    """
    number = add_delivery(tx, project.id, event.provider, event.delivery, event=event.name, outcome=RECORDED)
    if number is None:
        return TakenDelivery(REPEATED)
    forget_deliveries(tx, before=tx.now - _KEPT_MILLISECONDS, most=_BITE)
    found = _protocol(tx, project, event, run_id)
    taken = TakenDelivery(NO_PROTOCOL) if found is None else _take(tx, runtime, project, found, event)
    close_delivery(tx, number, run_id=taken.run_id, outcome=taken.outcome)
    return taken


def _protocol(tx: Transaction, project: Project, event: ForgeEvent, run_id: int | None) -> Protocol | None:
    if run_id is not None:
        return get_protocol(tx, run_id)
    if event.kind is ForgeEventKind.CHECK and event.commit is not None:
        of_commit = runs_of_commit(tx, project.id, event.commit)
        if of_commit:
            return get_protocol(tx, of_commit[-1])
    for branch in event.branches:
        for name in (branch, branch.removeprefix("refs/heads/")):
            found = find_protocol(tx, project.id, name)
            if found is not None:
                return found
    return None


def _take(
    tx: Transaction, runtime: Runtime, project: Project, found: Protocol, event: ForgeEvent
) -> TakenDelivery:
    if event.kind is ForgeEventKind.PULL_REQUEST:
        # Jobs first: a worker holds its job, and may want what comes next.
        lock_jobs(tx, found.run_id)
    hold(tx, project.id)
    lock_run(tx, found.run_id)
    protocol = get_protocol(tx, found.run_id)
    steps = list_protocol_steps(tx, protocol.run_id)
    about = _step(protocol, steps, event)
    _tell(tx, protocol, about, event)
    if event.kind is ForgeEventKind.CHECK:
        return _take_check(tx, runtime, project, protocol, about, event)
    if event.kind is ForgeEventKind.PULL_REQUEST and not protocol.status.final:
        return TakenDelivery(settle_pull_request(tx, runtime, protocol, event), protocol.run_id)
    return TakenDelivery(RECORDED, protocol.run_id)


def _take_check(
    tx: Transaction,
    runtime: Runtime,
    project: Project,
    protocol: Protocol,
    about: ProtocolStep | None,
    event: ForgeEvent,
) -> TakenDelivery:
    commit = event.commit or _commit_of(protocol, about)
    if commit is None:
        return TakenDelivery("no commit that CI could be about", protocol.run_id)
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
        return TakenDelivery(f"the protocol is {protocol.status}", protocol.run_id)
    if about is not None and commit == _stand_in(about):
        called = settle_steps(tx, runtime, project, protocol, commit, [about])
    else:
        called = settle_commit(tx, runtime, project, commit)
    return TakenDelivery(RECORDED, protocol.run_id, called)


def _detail(known: CiCheck | None, state: CheckState, said: dict[str, Any]) -> dict[str, Any]:
    """Where a check failed. What one word leaves out, such as the end of the log, an earlier one may have had."""
    reported = {name: value for name, value in said.items() if value is not None}
    still = known is not None and known.state == state == CheckState.FAILED and isinstance(known.detail, dict)
    return {**known.detail, **reported} if known is not None and still else reported


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
    reported = " ".join(each for each in (event.check, event.outcome) if each) or event.name
    tx.event(
        event.name,
        run_id=protocol.run_id,
        project_id=protocol.project_id,
        step_id=None if about is None else about.step_id,
        message=reported,
        data={name: value for name, value in said.items() if value is not None},
    )
