"""The content of artifacts. It comes from agents and candidates, so a browser may keep it but never run it."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from fastapi import APIRouter
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from ratchet.kernel import NotFound
from ratchet.ledger import Artifact, Transaction
from ratchet.ledger.projects import artifact_behind, artifact_of_project
from ratchet.server.service import Api, Caller

router = APIRouter(tags=["artifacts"])
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


@router.get("/artifacts/{sha256}", response_class=FileResponse)
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
