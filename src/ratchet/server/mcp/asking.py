"""Asking the API inside this process: its routes, checks, permissions and words, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message

from ratchet.kernel import RatchetError
from ratchet.server.caller import HEADER

_FORBIDDEN = 403
_NEEDS_TOKEN = "urn:ratchet:problem:project-token-needed"


class Refused(RatchetError):
    """The API did not do what was asked; the message and the hint are its own."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request. Of a long answer only `length` bytes from `offset` on are kept; without a length all of it."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: Any = None
    offset: int = 0
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of it: `body` is the part that was wanted, and `size` how long the whole is."""

    status: int
    headers: Headers
    body: bytes
    size: int

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks in somebody's name. `ways` are sets of headers: the next is tried where one is for another project."""

    app: ASGIApp
    ways: Sequence[Mapping[str, str]]
    token_hint: str | None = None

    async def ask(self, question: Question) -> Reply:
        """The reply to what succeeded. Raises `Refused`."""
        for way in self.ways:
            reply = await _ask(self.app, question, way)
            # Whose a thing is is looked at before anything is done, so asking again does nothing twice.
            if reply.status != _FORBIDDEN:
                break
        if reply.status >= 400:
            raise self._refused(reply)
        return reply

    def _refused(self, reply: Reply) -> Refused:
        problem = reply.json()
        hint = (
            self.token_hint
            if problem.get("type") == _NEEDS_TOKEN and self.token_hint
            else problem.get("hint")
        )
        return Refused(problem["detail"], hint=hint)


def operator_headers(token: str, project_token: str | None = None) -> list[dict[str, str]]:
    """As the operator, who shows the token of a project; its absence is what opens projects that have none."""
    alone = {"Authorization": f"Bearer {token}"}
    return [alone] if project_token is None else [{**alone, HEADER: project_token}, alone]


async def _ask(app: ASGIApp, question: Question, headers: Mapping[str, str]) -> Reply:
    body = b"" if question.body is None else json.dumps(question.body).encode()
    kept = _Kept(question.offset, question.length)
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            # Nobody hangs up here: whoever stops waiting cancels the request.
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    raw = [(name.lower().encode(), text.encode("latin-1", "replace")) for name, text in headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": question.method,
        "scheme": "http",
        "path": question.path,
        "raw_path": quote(question.path, errors="replace").encode(),
        "root_path": "",
        "query_string": urlencode(question.query, errors="replace").encode(),
        "headers": [*raw, (b"host", b"ratchet"), (b"content-type", b"application/json")],
        "client": None,
        "server": ("ratchet", 80),
        "state": {},
    }
    await app(scope, receive, kept.take)
    return Reply(kept.status, Headers(raw=kept.headers), bytes(kept.body), kept.size)


class _Kept:
    """The part of an answer that is wanted. A refusal is kept whole: it is short, and nobody asked for a part of it."""

    def __init__(self, offset: int, length: int | None) -> None:
        self.status = 500
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.size = 0
        self._begin, self._length = offset, length

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", ()))
            if self.status >= 400:
                self._begin, self._length = 0, None
        elif message["type"] == "http.response.body":
            part = message.get("body", b"")
            begin = max(self._begin - self.size, 0)
            end = None if self._length is None else max(self._begin + self._length - self.size, 0)
            self.body += part[begin:end]
            self.size += len(part)
