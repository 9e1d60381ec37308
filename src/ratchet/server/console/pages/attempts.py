"""One attempt: what was asked, what was said and changed, how it was judged, and everything that it left."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from ratchet.kernel import NotFound
from ratchet.ledger import Step, Transaction
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger.attempt_log import tail_log
from ratchet.ledger.protocol_steps import get_protocol_step
from ratchet.ledger.runs import get_attempt, get_run, get_step
from ratchet.protocols.views import attempt_records
from ratchet.server import protocol_shapes, shapes
from ratchet.server.console.door import ROOT
from ratchet.server.console.evidence import excerpt, report_of, verdict_of
from ratchet.server.console.rendering import Page
from ratchet.server.fields import Id
from ratchet.server.routes.artifacts import content
from ratchet.server.routes.attempts import change_of
from ratchet.server.service import Access, Api

router = APIRouter()
_TAIL = 400
_ARTIFACTS = 100


@router.get("/attempts/{attempt_id}")
def attempt(page: Page, attempt_id: Id) -> Response:
    document = _document(page.api, attempt_id)
    title = f"{document['step'].name}, attempt {document['attempt'].number}"
    live = {"attempt_id": attempt_id} if document["attempt"].ended_at is None else None
    return page.show("attempt.html", document, title=title, live=live)


@router.get("/artifacts/{sha256}")
def artifact(api: Api, sha256: str) -> FileResponse:
    """The file as a download. Whatever it says that it is, no page may use it as a script or a style."""
    answer = content(api, sha256)
    answer.headers["Content-Type"] = "application/octet-stream"
    return answer


def _document(api: Access, attempt_id: int) -> dict[str, Any]:
    with api.read() as tx:
        found = get_attempt(tx, attempt_id)
        record = protocol_shapes.Attempt.model_validate(attempt_records(tx, [found])[0])
        run = get_run(tx, found.run_id)
        log = tail_log(tx, attempt_id, most=_TAIL)
        change = change_of(tx, attempt_id)
        left = ledger_artifacts.latest(tx, attempt_id=attempt_id, limit=_ARTIFACTS)
        step = get_step(tx, found.step_id)
        place = _place(tx, step)
    return {
        "attempt": record,
        "step": shapes.Step.model_validate(step),
        "run": {
            "id": run.id,
            "kind": run.kind,
            "name": run.name,
            "status": run.status,
            "simulated": run.simulated or run.used_recording,
            "page": place,
        },
        "prompt": excerpt(api, record.links.prompt),
        "verdict": verdict_of(found.verdict),
        "report": report_of(api, found.verdict),
        "diff": excerpt(api, change),
        "log": log,
        "artifacts": [shapes.Artifact.model_validate(each) for each in left],
    }


def _place(tx: Transaction, step: Step) -> str:
    """The page that the attempt belongs to."""
    try:
        get_protocol_step(tx, step.id)
    except NotFound:
        return f"{ROOT}/runs/{step.run_id}"
    return f"{ROOT}/protocols/{step.run_id}?step_id={step.id}"
