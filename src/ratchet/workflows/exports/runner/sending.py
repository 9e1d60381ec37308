"""One HTTP request with the standard library: bounded in time and size, and no redirect is followed."""

from __future__ import annotations

import asyncio
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

_PIECE = 65_536


class Unreachable(Exception):
    """Nobody answered, or not as far as could be waited for."""


@dataclass(frozen=True)
class Answered:
    status: int
    content: bytes
    kind: str
    retry_after: str = ""


async def send(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, seconds: float, most: int
) -> Answered:
    """What came back, whatever its status is. Raises `Unreachable`."""
    request = urllib.request.Request(url, body, dict(headers), method=method)
    return await asyncio.to_thread(_send, request, time.monotonic() + seconds, most)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key would go to wherever an answer points."""

    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


def _send(request: urllib.request.Request, deadline: float, most: int) -> Answered:
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("there was no time left")
        try:
            response = opener.open(request, timeout=left)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            headers = response.headers
            return Answered(
                response.status,
                _read(response, deadline, most),
                headers.get("content-type", ""),
                headers.get("retry-after", ""),
            )
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(str(getattr(error, "reason", None) or error)) from error


def _read(response: http.client.HTTPResponse, deadline: float, most: int) -> bytes:
    found = bytearray()
    while piece := response.read1(_PIECE):
        found += piece
        if len(found) > most:
            raise Unreachable(f"the answer has more than {most} bytes")
        if time.monotonic() > deadline:
            raise Unreachable("the answer took too long")
    return bytes(found)
