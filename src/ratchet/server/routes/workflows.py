"""Workflows: the operations on them, their schema, and exporting one as an archive."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Response
from fastapi import Path as InPath
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from ratchet.flowkit.schema import workflow_schema
from ratchet.kernel import RunId
from ratchet.server.fields import MAX_ID, Text
from ratchet.server.operation import Body, add_operations
from ratchet.server.service import Api
from ratchet.workflows.exports import Target, export_workflow
from ratchet.workflows.operations import OPERATIONS
from ratchet.workflows.saved import load_saved

router = APIRouter(tags=["workflows"])


class Export(Body):
    target: Annotated[Target, Field(strict=False)]
    run_id: int | None = Field(
        None, ge=1, le=MAX_ID, description="a completed run, whose answers are taken along"
    )
    models: dict[Text, Text] = Field({}, description="which model answers for which; `*` is all others")


@router.get("/workflows/schema")
def schema() -> dict[str, Any]:
    """The JSON Schema of workflows."""
    return workflow_schema()


add_operations(router, OPERATIONS)


@router.post(
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
