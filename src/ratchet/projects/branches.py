"""The branches of a project's remote: listed, and deleted on a word that cannot be mistaken. Both leave an event."""

from __future__ import annotations

from ratchet.kernel import Conflict, RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import find_protocol
from ratchet.projects.branch_names import check_branch
from ratchet.projects.clone import open_clone
from ratchet.projects.errors import Unconfirmed
from ratchet.runtime import Runtime


def list_branches(
    runtime: Runtime, project_id: int, *, actor: str, request_id: str | None = None
) -> list[str]:
    """What the remote has now. Raises `CloneMissing` when the project is not here, and `RemoteFailed`."""
    project = _project(runtime, project_id)
    with open_clone(runtime, project, make=False) as clone:
        names = clone.remote_branches()
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        told = f"{len(names)} branches"
        tx.event("branches_listed", project_id=project_id, message=told, data={"count": len(names)})
    return names


def delete_branch(
    runtime: Runtime,
    project_id: int,
    branch: str,
    *,
    confirm: bool,
    actor: str,
    request_id: str | None = None,
) -> None:
    """Delete a branch of the remote. Never the base branch, nor that of a protocol that has not ended.

    Raises `Unconfirmed`, `Misuse` for what is no name of a branch, `NotFound`, `Conflict` and `RemoteFailed`.
    """
    project = _project(runtime, project_id)
    try:
        check_branch(branch)
        if not confirm:
            raise Unconfirmed(
                f"branch {branch!r} is not deleted without confirmation", hint="say so with `confirm`: true"
            )
        with runtime.ledger.read() as tx:
            check_deletable(tx, project, branch)
        with open_clone(runtime, project, make=False) as clone:
            clone.delete_remote_branch(branch)
    except RatchetError as error:
        _tell(runtime, project_id, "branch_delete_failed", branch, str(error), actor, request_id)
        raise
    _tell(runtime, project_id, "branch_deleted", branch, f"{branch} was deleted", actor, request_id)


def check_deletable(tx: Transaction, project: Project, branch: str) -> None:
    """Raises `Conflict` for a branch that work depends on."""
    if branch == project.base_branch:
        raise Conflict(f"{branch!r} is the base branch of project {project.name!r}, which is never deleted")
    protocol = find_protocol(tx, project.id, branch)
    if protocol is not None and not protocol.status.final:
        raise Conflict(
            f"{branch!r} is the branch of protocol {protocol.run_id}, which is {protocol.status}",
            hint="cancel the protocol first, or wait for its end",
        )


def _project(runtime: Runtime, project_id: int) -> Project:
    with runtime.ledger.read() as tx:
        return get_project(tx, project_id)


def _tell(
    runtime: Runtime,
    project_id: int,
    type: str,
    branch: str,
    message: str,
    actor: str,
    request_id: str | None,
) -> None:
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        tx.event(type, project_id=project_id, message=message, data={"branch": branch[:500]})
