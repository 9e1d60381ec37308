"""Attempts: what each came to, its evidence, and its log as it is written."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Depends, Query
from fastapi.responses import FileResponse
from fastapi.sse import format_sse_event
from starlette.types import Receive, Scope, Send

from ratchet.kernel import NotFound
from ratchet.ledger import Artifact, Transaction
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger.ledger import follow_log, log_line
from ratchet.ledger.projects import artifact_behind, artifact_of_project
from ratchet.ledger.runs import get_attempt
from ratchet.loop import CHANGE_FILE
from ratchet.operations import MAX_ID
from ratchet.protocols.step_operations import ATTEMPT_OPERATIONS
from ratchet.server.fields import Id
from ratchet.server.operation import router_of
from ratchet.server.problems import documented
from ratchet.server.routes.events import NO_STORE, EventStream, LastEventId, refuse_if_stopping
from ratchet.server.service import Access, Api, Caller

artifact_router = APIRouter(tags=["artifacts"])
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w-]+=[\w.+-]+)*", re.ASCII)
UNTRUSTED = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
}
# The address is the hash of the content: it never changes.
_FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}


class ContentResponse(FileResponse):
    """The content of an artifact, wherever it is. Ranges are served."""

    def __init__(self, content: BinaryIO, **options: Any) -> None:
        # One from the database becomes a file without a name, gone with this answer.
        self._file = content if isinstance(content, io.BufferedReader) else _unnamed(content)
        super().__init__(f"/dev/fd/{self._file.fileno()}", **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


@artifact_router.get("/artifacts/{sha256}", response_class=FileResponse)
def content(api: Api, sha256: str) -> FileResponse:
    """The file, as a download. Ranges are served. The caller can check it: its address is its SHA-256."""
    api.ledger.artifacts.path(sha256)  # raises NotFound for what is no hash
    with api.read() as tx:
        artifact = _seen(tx, api.caller, sha256)
    if artifact is None:
        raise NotFound("artifact", sha256)
    return ContentResponse(
        api.ledger.artifacts.open(sha256),
        filename=_file_name(artifact),
        media_type=_media_type(artifact),
        headers={**UNTRUSTED, **_FOREVER, "ETag": f'"{sha256}"'},
    )


def _unnamed(content: BinaryIO) -> BinaryIO:
    file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the answer
    file.write(content.read())
    file.flush()
    return file


def _seen(tx: Transaction, caller: Caller, sha256: str) -> Artifact | None:
    """The newest one with this content of somebody whose things the caller may see."""
    if caller.project_id is not None:
        return artifact_of_project(tx, sha256, caller.project_id)
    return artifact_behind(tx, sha256, caller.tokens)


def _file_name(artifact: Artifact) -> str:
    """The last part of its name: a name is anybody's text and must not lead out of a download directory."""
    last = PurePosixPath(artifact.name.replace("\\", "/")).name
    return artifact.sha256 if last in ("", ".", "..") else last


def _media_type(artifact: Artifact) -> str:
    sane = _MEDIA_TYPE.fullmatch(artifact.media_type)
    return artifact.media_type if sane else "application/octet-stream"


router = router_of("attempts", ATTEMPT_OPERATIONS, responses=documented(401, 403, 404, 422))
Offset = Annotated[
    int, Query(ge=0, le=MAX_ID, description="where to continue: `next_offset` of the last part")
]


@router.get(
    "/attempts/{attempt_id}/diff",
    response_class=FileResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def diff(api: Api, attempt_id: Id) -> FileResponse:
    """What its author changed, kept or not, as a patch. 404 while there is nothing."""
    with api.read() as tx:
        get_attempt(tx, attempt_id)
        change = change_of(tx, attempt_id)
    try:
        content = api.ledger.artifacts.open(change or "")
    except NotFound:
        raise NotFound("diff of attempt", attempt_id) from None
    return ContentResponse(content, media_type="text/plain", headers=UNTRUSTED)


def change_of(tx: Transaction, attempt_id: int) -> str | None:
    """The hash of the patch of an attempt, if there is one yet."""
    found = [each for each in ledger_artifacts.of_attempt(tx, attempt_id) if each.name == CHANGE_FILE]
    return found[-1].sha256 if found else None


def _start(api: Api, attempt_id: Id, offset: Offset = 0, last_event_id: LastEventId = None) -> int:
    refuse_if_stopping(api.service)
    with api.read() as tx:
        get_attempt(tx, attempt_id)
    return offset if last_event_id is None else last_event_id


@router.get("/attempts/{attempt_id}/log/stream", response_class=EventStream, responses=documented(503))
async def log_stream(api: Api, attempt_id: Id, after: Annotated[int, Depends(_start)]) -> EventStream:
    """The log as it is written, line by line, after `Last-Event-ID` or `offset`. The last message is `event: end`."""
    return EventStream(_lines(api, attempt_id, after), headers=NO_STORE)


async def _lines(api: Access, attempt_id: int, after: int) -> AsyncIterator[bytes]:
    stop = api.service.stopping
    async with aclosing(follow_log(api.ledger, attempt_id, after, stop=stop)) as events:
        async for event in events:
            after = event.id
            line = json.dumps({"offset": after, "text": log_line(event)}, ensure_ascii=False)
            yield format_sse_event(id=str(after), data_str=line)
    if not stop.is_set():
        yield format_sse_event(event="end", id=str(after), data_str="{}")
