"""Protocols: which there are, and making one."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from starlette.responses import Response

from ratchet.engines.preflight import check_for_worker
from ratchet.kernel import Misuse, RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project, list_projects
from ratchet.ledger.protocol_steps import count_protocol_steps
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.protocols.operations import listed
from ratchet.protocols.planning import create_described
from ratchet.protocols.preflight import check_new
from ratchet.protocols.views import protocol_record
from ratchet.server.console.acting import Acting
from ratchet.server.console.door import ROOT
from ratchet.server.console.evidence import pull_request_of
from ratchet.server.console.rendering import Page
from ratchet.server.fields import MAX_ID, IdFilter, Text
from ratchet.server.paging import Paging
from ratchet.server.project_scope import enter
from ratchet.server.service import Access

router = APIRouter()
_MOST_PROJECTS = 200
Description = Annotated[str, Form(max_length=100_000)]


@router.get("/protocols")
def protocols(
    page: Page,
    pager: Paging,
    project_id: IdFilter = None,
    status: Annotated[RunStatus | None, Query()] = None,
) -> Response:
    api = page.api
    shown = listed(api, pager, project_id=project_id, status=status)
    with api.read() as tx:
        counts = count_protocol_steps(tx, [each.run_id for each in shown.items])
        choice = _projects(api, tx)
        names = {each.project_id: get_project(tx, each.project_id).name for each in shown.items}
    document = {
        "protocols": [
            {
                **protocol_record(each, brief=True),
                "project": names[each.project_id],
                "steps": counts[each.run_id],
                "stands": each.status.stands and not each.status.final,
                "pull_request": pull_request_of(each.pull_request),
            }
            for each in shown.items
        ],
        "next": shown.next,
        "project_id": project_id,
        "status": status,
        "statuses": list(RunStatus),
        "projects": [_choice(each) for each in choice],
        "automatic": api.runtime.settings.protocols.automatic,
    }
    live: dict[str, Any] = {"type": "run.*"} if project_id is None else {"project_id": project_id}
    return page.show(
        "protocols.html", document, title="Protocols", live=live if pager.before is None else None
    )


@router.post("/protocols")
def create(
    page: Page,
    _: Acting,
    project: Annotated[int, Form(ge=1, le=MAX_ID)],
    description: Description,
    name: Annotated[Text | None, Form()] = None,
    base_branch: Annotated[Text | None, Form()] = None,
    automatic: Annotated[bool, Form()] = False,
) -> Response:
    """Make it and start it. Without a name it gets the next number and the first words of its description."""
    api, text = page.api, description.replace("\r\n", "\n").strip()
    if not text:
        raise Misuse("the description is empty", hint="say what is to be changed")
    with api.read() as tx:
        enter(api, tx, "project", project)
        owner = get_project(tx, project)
    check_for_worker(api.runtime, partial(check_new, api.runtime))

    def make(tx: Transaction, called: str) -> int:
        run_id = create_protocol(
            tx,
            api.runtime,
            project,
            called,
            base_branch=base_branch,
            description=text,
            automatic=automatic,
        )
        start_protocol(tx, api.runtime, run_id)
        return run_id

    if name is not None:
        with api.write() as tx:
            run_id = make(tx, name)
    else:
        run_id = create_described(
            api.runtime, owner, text, make, write=api.write, base_branch=base_branch, make_clone=False
        )
    return page.done("The protocol is made; planning is in line.", f"{ROOT}/protocols/{run_id}")


def _projects(api: Access, tx: Transaction) -> list[Project]:
    """Those that can be chosen: neither archived nor guarded by a token that was not shown."""
    found = list_projects(tx, limit=_MOST_PROJECTS)
    hidden = api.caller.hidden(tx, (each.id for each in found))
    return [each for each in found if each.id not in hidden]


def _choice(project: Project) -> dict[str, Any]:
    return {"id": project.id, "name": project.name, "base_branch": project.base_branch}
