"""Projects: which there are, how each was set up, what it asks, and what is done with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from pydantic import Field
from starlette.responses import Response

from ratchet.kernel import NotFound, RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project, list_projects
from ratchet.ledger.protocols import count_protocol_steps, list_protocols
from ratchet.ledger.questions import (
    Clarification,
    get_clarification,
    latest_answered,
    list_clarifications,
)
from ratchet.ledger.runs import get_run
from ratchet.operations import record
from ratchet.projects import operations
from ratchet.projects.clarifications import answer, recommended_of
from ratchet.projects.clone import check_deletable
from ratchet.projects.discovery import read_facts
from ratchet.projects.operations import ClarificationAnswer, ProjectAnswer
from ratchet.projects.registration import (
    PROVIDERS,
    check_set_up_again,
    read_answer,
)
from ratchet.projects.setup import written
from ratchet.projects.stages import onboarding_view
from ratchet.protocols.views import protocol_record
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.formats import spent
from ratchet.server.console.forms import add_buttons
from ratchet.server.console.page import Page
from ratchet.server.fields import Id, Paging
from ratchet.server.operation import shown as show_shape
from ratchet.server.service import Access

router = APIRouter()
_PROTOCOLS = 20
Lines = Annotated[str, Field(max_length=20_000)]
add_buttons(router, {"": operations.register}, "/projects", "/projects/{it.id}")
add_buttons(
    router, (operations.start_onboarding,), "/projects/{project_id}/onboarding", "/projects/{project_id}"
)


@router.get("/projects")
def projects(page: Page, pager: Paging, archived: Annotated[bool, Query()] = False) -> Response:
    with page.api.read() as tx:
        found = list_projects(tx, before=pager.before, limit=pager.one_more, archived=archived)
        hidden = page.api.caller.hidden(tx, (each.id for each in found))
        shown = pager.without(found, lambda each: each.id in hidden)
        set_up: dict[int, str] = {each.id: _set_up(tx, each) for each in shown.items}
        records = ProjectAnswer.all_of(tx, shown.items)
    document = {
        "projects": [{**record(each), "onboarding": set_up[each.id]} for each in records],
        "hidden": len(hidden),
        "next": shown.next,
        "archived": archived,
        "providers": PROVIDERS,
    }
    live = {"type": "run.*"} if pager.before is None else None
    return page.show("projects.html", document, title="Projects", live=live)


@router.get("/projects/{project_id}")
def project(page: Page, project_id: Id) -> Response:
    document = _document(page.api, project_id)
    live = {"project_id": project_id}
    return page.show("project.html", document, title=document["project"].name, live=live)


@router.post("/projects/{project_id}/setup")
def change_setup(page: Page, _: Acting, project_id: Id, lines: Annotated[Lines, Form()] = "") -> Response:
    """Set it up by other commands, or again by those that were found."""
    given = [line for line in lines.splitlines() if line.strip()]
    operations.change_setup(page.api, project_id, given or None)
    return page.done("The set-up is changed.", _page_of(project_id))


@router.post("/projects/{project_id}/checks")
def change_checks(page: Page, _: Acting, project_id: Id, lines: Annotated[Lines, Form()] = "") -> Response:
    """Have other checks decide, or again those that were found."""
    pairs = [line.partition("=") for line in lines.splitlines() if line.strip()]
    given = [operations.GivenCheck(name.strip(), said) for name, _, said in pairs]
    operations.change_checks(page.api, project_id, given or None)
    return page.done("The checks are changed.", _page_of(project_id))


@router.post("/projects/{project_id}/actions/archive")
def archive(
    page: Page, _: Acting, project_id: Id, archived: Annotated[bool, Form(alias="away")] = False
) -> Response:
    """Put it away, or take it out again; nothing of it is lost."""
    operations.change(page.api, project_id, archived=archived)
    done = "The project is archived." if archived else "The project is out of the archive."
    return page.done(done, _page_of(project_id))


def _document(api: Access, project_id: int) -> dict[str, Any]:
    with api.read() as tx:
        found = get_project(tx, project_id)
        questions, answered = asked_of(tx, project_id=project_id)
        protocols = list_protocols(tx, project_id=project_id, limit=_PROTOCOLS)
        counts = count_protocol_steps(tx, [each.run_id for each in protocols])
        return {
            "project": show_shape(ProjectAnswer.at(tx, project_id)),
            "onboarding": show_shape(onboarding_view(tx, found)),
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


_MOST = 100


def asked_of(
    tx: Transaction, *, project_id: int | None = None, run_id: int | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The open questions about a project or a run, those that block first, and what was answered, newest first."""
    still_open = list_clarifications(tx, project_id=project_id, run_id=run_id, open_only=True, limit=_MOST)
    answered = latest_answered(tx, project_id=project_id, run_id=run_id, limit=_MOST)
    return forms(still_open), [record(ClarificationAnswer.of(each)) for each in answered]


def forms(asked: Iterable[Clarification]) -> list[dict[str, Any]]:
    """Each with what its form needs; those that something waits for come first."""
    return [_form(each) for each in sorted(asked, key=lambda each: (not each.blocking, each.id))]


def _form(asked: Clarification) -> dict[str, Any]:
    options = asked.options if isinstance(asked.options, list) else None
    recommended = json.dumps(asked.recommended)
    return {
        **record(ClarificationAnswer.of(asked)),
        "choices": None
        if options is None
        else [
            {
                "value": json.dumps(each),
                "text": _text(each),
                "recommended": json.dumps(each) == recommended and asked.recommended is not None,
            }
            for each in options
        ],
        "wants_json": isinstance(asked.recommended, list | dict | bool | int | float),
        "prefilled": asked.recommended or "" if isinstance(asked.recommended, str | None) else recommended,
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@router.post("/projects/{project_id}/clarifications/actions/recommended")
def take_recommended(page: Page, _: Acting, project_id: Id) -> Response:
    """Answer every open question that has a recommended answer with it."""
    with page.api.write() as tx:
        asked = recommended_of(tx, project_id)
        for each in asked:
            answer(tx, page.api.runtime, each.id, each.recommended, by=page.api.actor)
    return page.done(f"{len(asked)} questions are answered.", f"{ROOT}/projects/{project_id}")


@router.post("/projects/{project_id}/clarifications/{clarification_id}/actions/answer")
def give_answer(
    page: Page,
    _: Acting,
    project_id: Id,
    clarification_id: Id,
    text: Annotated[str, Form(alias="answer", max_length=20_000)],
    wanted: Annotated[str | None, Form(alias="next", max_length=2000)] = None,
) -> Response:
    """What waited for this and for nothing else continues."""
    with page.api.write() as tx:
        asked = get_clarification(tx, clarification_id)
        if asked.project_id != project_id:
            raise NotFound("clarification", clarification_id)
        said = read_answer(asked, text.replace("\r\n", "\n").strip())
        answer(tx, page.api.runtime, clarification_id, said, by=page.api.actor)
    return page.done(f"{asked.key} is answered.", wanted or f"{ROOT}/projects/{project_id}")


_MOST_BRANCHES = 300


@router.get("/projects/{project_id}/branches")
def branches(page: Page, project_id: Id) -> Response:
    """What the remote has now. Never live: asking leaves an event, which would have it asked again."""
    api = page.api
    names = operations.branches(api, project_id).branches
    with api.read() as tx:
        project = get_project(tx, project_id)
        shown = [{"name": name, "why_not": _why_not(tx, project, name)} for name in names[:_MOST_BRANCHES]]
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
    operations.delete_branch(page.api, project_id, branch, confirm)
    return page.done(f"{branch} is deleted.", f"{ROOT}/projects/{project_id}/branches")


def _why_not(tx: Transaction, project: Project, branch: str) -> str | None:
    try:
        check_deletable(tx, project, branch)
    except RatchetError as error:
        return str(error)
    return None
