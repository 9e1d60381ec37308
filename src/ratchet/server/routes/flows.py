"""The requests of queues, protocols, research and workflows: their operations, and what answers with text or events."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from fastapi import Path as InPath
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from ratchet.flowkit.schema import workflow_schema
from ratchet.kernel import RunId
from ratchet.ledger import EventFilter
from ratchet.ledger.protocols import get_protocol
from ratchet.ledger.research import find_research
from ratchet.ledger.trials import get_trial
from ratchet.protocols.operations import PROTOCOL_OPERATIONS
from ratchet.protocols.step_operations import ABOUT_PROTOCOLS, SPEC_OPERATIONS, STEP_OPERATIONS
from ratchet.protocols.views import ProtocolEvent
from ratchet.research.campaign import research_directory
from ratchet.research.operations import OPERATIONS as RESEARCH_OPERATIONS
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.views import full_report, read_diff
from ratchet.runtime.operations.jobs import QUEUE_OPERATIONS, QueueAnswer, list_
from ratchet.server.fields import MAX_ID, Id, Text
from ratchet.server.operation import Body, add_operations, router_of, shape_of
from ratchet.server.problems import documented
from ratchet.server.routes.events import NO_STORE, EventStream, Start, frames
from ratchet.server.service import Api
from ratchet.workflows.exports import Target, export_workflow
from ratchet.workflows.operations import OPERATIONS as WORKFLOW_OPERATIONS
from ratchet.workflows.saved import load_saved

if TYPE_CHECKING:
    from ratchet.server.fields import Shape as Queue
else:
    Queue = shape_of(QueueAnswer)

queues = APIRouter(tags=["queues"])


class Queues(BaseModel):
    """Every queue under its name, beside the name of what carries them."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Queue]

    backend: Literal["ledger"] = "ledger"


@queues.get("/queues", name="queues")
def list_queues(api: Api) -> Queues:
    """Every queue with its limits, and how many jobs it holds in each status."""
    return Queues.model_validate(
        {"backend": "ledger"} | {state.name: QueueAnswer.of(state) for state in list_(api).items}
    )


add_operations(queues, QUEUE_OPERATIONS)


_ERRORS = documented(400, 401, 403, 422)
protocols = router_of(
    "protocols", (*PROTOCOL_OPERATIONS, *ABOUT_PROTOCOLS), responses=documented(400, 401, 403, 422, 502)
)
steps = router_of("steps", STEP_OPERATIONS, responses=_ERRORS)
specs = router_of("specs", SPEC_OPERATIONS, responses=_ERRORS)


def _exists(api: Api, protocol_id: Id) -> None:
    with api.read() as tx:
        get_protocol(tx, protocol_id)


@protocols.get(
    "/protocols/{protocol_id}/events/stream", response_class=EventStream, responses=documented(404, 503)
)
async def event_stream(
    api: Api, protocol_id: Id, _: Annotated[None, Depends(_exists)], after: Start
) -> EventStream:
    """Every event of the protocol after `Last-Event-ID` or `since`, as it happens."""
    where = EventFilter(run_id=protocol_id)
    return EventStream(frames(api, after, where, ProtocolEvent.of), headers=NO_STORE)


research = router_of("research", RESEARCH_OPERATIONS)
RunName = Annotated[
    str, InPath(max_length=200, description="its number, or its name: the newest run of that name")
]
_MOST_DIFF = 2_000_000
_HARMLESS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
# Texts in it come from agents and candidates. Nothing is loaded, nothing runs, nobody frames it.
_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@research.get("/research/{run}/trials/{exp}/diff", response_class=PlainTextResponse)
def diff(api: Api, run: RunName, exp: str) -> PlainTextResponse:
    """How its files differ from those of its parent, as a patch; `X-Truncated` says that a very long one was cut."""
    with api.read() as tx:
        found = get_trial(tx, find_research(tx, run), trial_number(exp))
    patch = read_diff(research_directory(api.home, found.run_id), found)
    cut = {"X-Truncated": "true"} if len(patch) > _MOST_DIFF else {}
    return PlainTextResponse(patch[:_MOST_DIFF], headers={**_HARMLESS, **cut})


@research.get("/research/{run}/report", response_class=HTMLResponse)
def report(api: Api, run: RunName) -> HTMLResponse:
    """The run as one page that needs nothing else: scores, tree, leaderboard and evidence."""
    with api.read() as tx:
        run_id = find_research(tx, run)
        page = full_report(api.ledger, tx, run_id, research_directory(api.home, run_id))
    return HTMLResponse(page, headers={**_HARMLESS, "Content-Security-Policy": _POLICY})


workflows = APIRouter(tags=["workflows"])


class Export(Body):
    target: Annotated[Target, Field(strict=False)]
    run_id: int | None = Field(
        None, ge=1, le=MAX_ID, description="a completed run, whose answers are taken along"
    )
    models: dict[Text, Text] = Field({}, description="which model answers for which; `*` is all others")


@workflows.get("/workflows/schema")
def schema() -> dict[str, Any]:
    """The JSON Schema of workflows."""
    return workflow_schema()


add_operations(workflows, WORKFLOW_OPERATIONS)


@workflows.post(
    "/workflows/{name}/export", response_class=Response, responses={200: {"content": {"application/zip": {}}}}
)
async def export(api: Api, name: Annotated[str, InPath(max_length=200)], wanted: Export) -> Response:
    """The workflow as a zip of a folder that runs without Ratchet. 422 says for each step why it cannot be exported."""
    spec = await run_in_threadpool(load_saved, api.runtime, name)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "export"
        run_id = None if wanted.run_id is None else RunId(wanted.run_id)
        models = dict(wanted.models) or None
        await export_workflow(spec, wanted.target, folder, runtime=api.runtime, run_id=run_id, models=models)
        content = await run_in_threadpool(_zipped, folder)
    headers = {"Content-Disposition": f'attachment; filename="{wanted.target}.zip"'}
    return Response(content, media_type="application/zip", headers=headers)


def _zipped(folder: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return packed.getvalue()
