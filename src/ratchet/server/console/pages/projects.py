"""Projects: which there are, how each was set up, what it asks, and what is done with it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from pydantic import Field
from starlette.responses import Response

from ratchet.kernel import RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project, list_projects
from ratchet.ledger.protocol_steps import count_protocol_steps
from ratchet.ledger.protocols import list_protocols
from ratchet.ledger.runs import get_run
from ratchet.projects.discovery import read_facts
from ratchet.projects.onboarding_view import onboarding_view
from ratchet.projects.registering import PROVIDERS, check_set_up_again, register_project, set_up_again
from ratchet.projects.registering import update_project as change_project
from ratchet.projects.settled import settle_checks, settle_setup, use_found, written
from ratchet.protocols.views import onboarding_record, project_record, project_records, protocol_record
from ratchet.server import protocol_shapes as shapes
from ratchet.server.console.acting import Acting
from ratchet.server.console.door import ROOT
from ratchet.server.console.questions import asked_of
from ratchet.server.console.rendering import Page
from ratchet.server.console.spending import spent
from ratchet.server.fields import Id, Text
from ratchet.server.paging import Paging
from ratchet.server.routes.projects import Address
from ratchet.server.service import Access

router = APIRouter()
_PROTOCOLS = 20
Lines = Annotated[str, Field(max_length=20_000)]


@router.get("/projects")
def projects(page: Page, pager: Paging, archived: Annotated[bool, Query()] = False) -> Response:
    with page.api.read() as tx:
        found = list_projects(tx, before=pager.before, limit=pager.one_more, archived=archived)
        hidden = page.api.caller.hidden(tx, (each.id for each in found))
        shown = pager.without(found, lambda each: each.id in hidden)
        set_up = {each.id: _set_up(tx, each) for each in shown.items}
        records = project_records(tx, shown.items)
    document = {
        "projects": [
            {**shapes.Project.model_validate(each).model_dump(), "onboarding": set_up[each["id"]]}
            for each in records
        ],
        "hidden": len(hidden),
        "next": shown.next,
        "archived": archived,
        "providers": PROVIDERS,
    }
    live = {"type": "run.*"} if pager.before is None else None
    return page.show("projects.html", document, title="Projects", live=live)


@router.post("/projects")
def register(
    page: Page,
    _: Acting,
    name: Annotated[Text, Form()],
    git_url: Annotated[Address | None, Form()] = None,
    local_path: Annotated[Address | None, Form()] = None,
    base_branch: Annotated[Text, Form()] = "main",
    ci_provider: Annotated[Text | None, Form()] = None,
) -> Response:
    with page.api.write() as tx:
        project_id = register_project(
            tx,
            page.api.runtime,
            name=name,
            git_url=git_url,
            local_path=local_path,
            base_branch=base_branch,
            ci_provider=ci_provider,
        )
    return page.done(f"{name} is registered; its onboarding is in line.", _page_of(project_id))


@router.get("/projects/{project_id}")
def project(page: Page, project_id: Id) -> Response:
    document = _document(page.api, project_id)
    live = {"project_id": project_id}
    return page.show("project.html", document, title=document["project"].name, live=live)


@router.post("/projects/{project_id}/onboarding/actions/start")
def start_onboarding(page: Page, _: Acting, project_id: Id) -> Response:
    with page.api.write() as tx:
        set_up_again(tx, page.api.runtime, project_id)
    return page.done("The onboarding is in line.", _page_of(project_id))


@router.post("/projects/{project_id}/setup")
def change_setup(page: Page, _: Acting, project_id: Id, lines: Annotated[Lines, Form()] = "") -> Response:
    """Set it up by other commands, or again by those that were found."""
    given = [line for line in lines.splitlines() if line.strip()]
    with page.api.write() as tx:
        get_project(tx, project_id)
        if given:
            settle_setup(tx, project_id, given)
        else:
            use_found(tx, project_id, "setup")
    return page.done("The set-up is changed.", _page_of(project_id))


@router.post("/projects/{project_id}/checks")
def change_checks(page: Page, _: Acting, project_id: Id, lines: Annotated[Lines, Form()] = "") -> Response:
    """Have other checks decide, or again those that were found."""
    pairs = [line.partition("=") for line in lines.splitlines() if line.strip()]
    with page.api.write() as tx:
        get_project(tx, project_id)
        if pairs:
            settle_checks(
                tx, project_id, [{"name": name.strip(), "command": said} for name, _, said in pairs]
            )
        else:
            use_found(tx, project_id, "checks")
    return page.done("The checks are changed.", _page_of(project_id))


@router.post("/projects/{project_id}/actions/archive")
def archive(
    page: Page, _: Acting, project_id: Id, archived: Annotated[bool, Form(alias="away")] = False
) -> Response:
    """Put it away, or take it out again; nothing of it is lost."""
    with page.api.write() as tx:
        change_project(tx, page.api.runtime, project_id, {"archived": archived})
    told = "The project is archived." if archived else "The project is out of the archive."
    return page.done(told, _page_of(project_id))


def _document(api: Access, project_id: int) -> dict[str, Any]:
    with api.read() as tx:
        found = get_project(tx, project_id)
        record = project_record(tx, found)
        onboarding = onboarding_record(onboarding_view(tx, found))
        questions, answered = asked_of(tx, project_id=project_id)
        protocols = list_protocols(tx, project_id=project_id, limit=_PROTOCOLS)
        counts = count_protocol_steps(tx, [each.run_id for each in protocols])
        return {
            "project": shapes.Project.model_validate(record),
            "onboarding": shapes.Onboarding.model_validate(onboarding),
            "questions": questions,
            "answered": answered,
            "protocols": [
                {**protocol_record(each, brief=True), "steps": counts[each.run_id]} for each in protocols
            ],
            "checks": _checks(found.facts.get("checks")),
            "setup": [written(argv) for argv in read_facts(found.facts).setup],
            "spent": spent(tx, api.runtime.settings, "project", project_id),
            "why_not": {
                "onboarding": _why_not_set_up(tx, found),
                "recommended": None
                if any(each["recommended"] is not None for each in questions)
                else "nothing is recommended",
            },
        }


def _checks(known: Any) -> list[dict[str, str]]:
    """The checks that onboarding found, as commands."""
    return [
        {
            "name": str(each.get("name", "")),
            "kind": str(each.get("kind", "")),
            "command": written(map(str, each.get("argv") or ())),
        }
        for each in (known if isinstance(known, list) else ())
        if isinstance(each, dict)
    ]


def _set_up(tx: Transaction, project: Project) -> str:
    """How far its onboarding is."""
    return "pending" if project.setup_run_id is None else str(get_run(tx, project.setup_run_id).status)


def _why_not_set_up(tx: Transaction, project: Project) -> str | None:
    try:
        check_set_up_again(tx, project)
    except RatchetError as error:
        return str(error)
    return None


def _page_of(project_id: int) -> str:
    return f"{ROOT}/projects/{project_id}"
