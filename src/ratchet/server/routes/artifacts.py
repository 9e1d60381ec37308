"""The content of artifacts. It comes from agents and candidates, so a browser may keep it but never run it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from fastapi import APIRouter
from fastapi.responses import FileResponse

from ratchet.kernel import NotFound
from ratchet.ledger import Artifact
from ratchet.ledger.artifacts import find
from ratchet.server.service import Api

router = APIRouter(tags=["artifacts"])
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w-]+=[\w.+-]+)*", re.ASCII)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    # The address is the hash of the content: it never changes.
    "Cache-Control": "private, max-age=31536000, immutable",
}


@router.get("/artifacts/{sha256}", response_class=FileResponse)
def content(api: Api, sha256: str) -> FileResponse:
    """The file, as a download. Ranges are served. The caller can check it: its address is its SHA-256."""
    path = api.ledger.artifacts.path(sha256)
    with api.read() as tx:
        artifact = find(tx, sha256)
    if not path.is_file():
        raise NotFound("artifact", sha256)
    return FileResponse(
        path,
        filename=_file_name(artifact),
        media_type=_media_type(artifact),
        headers={**_HEADERS, "ETag": f'"{sha256}"'},
    )


def _file_name(artifact: Artifact) -> str:
    """The last part of its name: a name is anybody's text and must not lead out of a download directory."""
    last = PurePosixPath(artifact.name.replace("\\", "/")).name
    return artifact.sha256 if last in ("", ".", "..") else last


def _media_type(artifact: Artifact) -> str:
    sane = _MEDIA_TYPE.fullmatch(artifact.media_type)
    return artifact.media_type if sane else "application/octet-stream"
