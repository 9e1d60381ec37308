"""Answering what was asked about a project or one of its protocols."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.responses import Response

from ratchet.kernel import NotFound
from ratchet.ledger.clarifications import get_clarification
from ratchet.projects.answers import read_answer
from ratchet.projects.clarifying import answer, recommended_of
from ratchet.server.console.acting import Acting
from ratchet.server.console.door import ROOT
from ratchet.server.console.rendering import Page
from ratchet.server.fields import Id

router = APIRouter()


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
    """What waited for this and for nothing else goes on."""
    with page.api.write() as tx:
        asked = get_clarification(tx, clarification_id)
        if asked.project_id != project_id:
            raise NotFound("clarification", clarification_id)
        said = read_answer(asked, text.replace("\r\n", "\n").strip())
        answer(tx, page.api.runtime, clarification_id, said, by=page.api.actor)
    return page.done(f"{asked.key} is answered.", wanted or f"{ROOT}/projects/{project_id}")
