"""The branches of a project's remote. Asking the remote takes its time, so they have a page of their own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.responses import Response

from ratchet.kernel import RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project
from ratchet.projects.branches import check_deletable, delete_branch, list_branches
from ratchet.server.console.acting import Acting
from ratchet.server.console.door import ROOT
from ratchet.server.console.rendering import Page
from ratchet.server.fields import Id

router = APIRouter()
_MOST = 300


@router.get("/projects/{project_id}/branches")
def branches(page: Page, project_id: Id) -> Response:
    """What the remote has now. Never live: asking leaves an event, which would have it asked again."""
    api = page.api
    names = list_branches(api.runtime, project_id, actor=api.actor, request_id=api.request_id)
    with api.read() as tx:
        project = get_project(tx, project_id)
        shown = [{"name": name, "why_not": _why_not(tx, project, name)} for name in names[:_MOST]]
    document = {
        "project": {"id": project.id, "name": project.name},
        "branches": shown,
        "more": len(names) - len(shown),
    }
    return page.show("branches.html", document, title=f"Branches of {project.name}")


@router.post("/projects/{project_id}/branches/actions/delete")
def delete(
    page: Page,
    _: Acting,
    project_id: Id,
    branch: Annotated[str, Form(max_length=500)],
    confirm: Annotated[bool, Form()] = False,
) -> Response:
    api = page.api
    delete_branch(
        api.runtime, project_id, branch, confirm=confirm, actor=api.actor, request_id=api.request_id
    )
    return page.done(f"{branch} is deleted.", f"{ROOT}/projects/{project_id}/branches")


def _why_not(tx: Transaction, project: Project, branch: str) -> str | None:
    try:
        check_deletable(tx, project, branch)
    except RatchetError as error:
        return str(error)
    return None
