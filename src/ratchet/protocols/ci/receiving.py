"""A webhook comes in: which project it is about, whether that project's forge sent it, and then what it says.

A delivery is about the project whose repository it names. Where several projects work on one repository it belongs to
the one whose secret it is signed with. One that names no repository, such as the report of a CI script, must say in its
address which project or protocol it means. Nothing that it says counts before its signature is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.forges import Delivery, EventKind, ForgeEvent, UnsignedDelivery
from ratchet.kernel import JobId, NotFound, RunId
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project, projects_of_remote
from ratchet.ledger.protocols import get_protocol
from ratchet.projects.remote import remote_key
from ratchet.projects.secrets import WEBHOOK_SECRET, read_secret
from ratchet.protocols.ci.taking import NO_PROTOCOL, REPEATED, take_delivery
from ratchet.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Received:
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
) -> Received:
    """Take a delivery, or raise `MalformedDelivery`, `UnsignedDelivery` or `NotFound`."""
    if not delivery.proof:
        raise UnsignedDelivery("the delivery is not signed", hint=_configure(delivery))
    if project_id is None and run_id is None:
        event = delivery.read()
        projects = _senders(runtime, delivery, event)
    else:
        projects = [_named(runtime, delivery, project_id, run_id)]
        event = delivery.read()
        _check_repository(projects[0], event)
    if event.kind is EventKind.PING:
        return Received("pong", "ping")
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
        return Received("already recorded", REPEATED)
    if taken.outcome == NO_PROTOCOL:
        # A forge that is told of an error for each push to another branch would give up the webhook.
        return Received("Webhook recorded; no protocol has this branch", "ignored")
    return Received("Webhook recorded", "recorded", taken.run_id, taken.job_id)


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
