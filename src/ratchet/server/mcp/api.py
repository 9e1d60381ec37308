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
from ratchet.server.service import HEADER

LONGEST_ANSWER = 60_000
# How long a single text may stay, tried in turn until the whole fits.
_LENGTHS = (20_000, 5_000, 1_000, 200)

CUT: dict[str, Any] = {
    "type": "array",
    "description": "what was too long and shows only its beginning, as text; read_part reads on",
    "items": {
        "type": "object",
        "properties": {
            "at": {"type": "string", "description": "a JSON pointer into this answer"},
            "shown": {
                "type": "integer",
                "description": "characters that are shown: the offset to continue from",
            },
            "whole": {"type": "integer", "description": "characters of the whole text"},
        },
        "required": ["at", "shown", "whole"],
    },
}


class TooLong(RatchetError):
    """The answer is long because of how many things are in it."""


def fitting(value: dict[str, Any], free: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The answer, cut where it would be too long. Raises `TooLong`.

    Long texts show their beginning, and so do values under a name in `free`, as JSON: their schema allows anything.
    `cut` in the answer names all of them.
    """
    size = _size(value)
    if size <= LONGEST_ANSWER:
        return value
    for length in _LENGTHS:
        shortening = _Shortening(length, free)
        shorter = {**shortening.of(value, ""), "cut": shortening.cuts}
        if _size(shorter) <= LONGEST_ANSWER:
            return shorter
    raise TooLong(
        f"the answer has {size} characters, and {LONGEST_ANSWER} are the most",
        hint="ask for fewer with `limit` where that is taken, or read it in parts with read_part",
    )


def free_names(schema: Any) -> frozenset[str]:
    """The names of properties that can hold anything, wherever they are in the schema."""
    found: dict[str, bool] = {}
    _look_for_names(schema, found)
    return frozenset(name for name, free in found.items() if free)


def at(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to. Raises `KeyError`, `IndexError`, `TypeError` or `ValueError` if nothing."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def as_text(value: Any) -> str:
    """What offsets into a value count: the characters of a text, or of the JSON of anything else."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _look_for_names(schema: Any, found: dict[str, bool]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _look_for_names(each, found)
    elif isinstance(schema, dict):
        for name, property_schema in schema.get("properties", {}).items():
            free = not property_schema.keys() - {"description", "default"}
            found[name] = found.get(name, True) and free
        for each in schema.values():
            _look_for_names(each, found)


class _Shortening:
    """Cuts what is longer than `length`, and remembers where."""

    def __init__(self, length: int, free: frozenset[str]) -> None:
        self.cuts: list[dict[str, Any]] = []
        self._length = length
        self._free = free

    def of(self, value: Any, pointer: str, *, free: bool = False) -> Any:
        if isinstance(value, str) or free:
            text = as_text(value)
            return value if len(text) <= self._length else self._cut(text, pointer)
        if isinstance(value, dict):
            return {
                key: self.of(
                    each,
                    f"{pointer}/{_escaped(key)}",
                    free=isinstance(each, dict | list) and key in self._free,
                )
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self.of(each, f"{pointer}/{place}") for place, each in enumerate(value)]
        return value

    def _cut(self, text: str, pointer: str) -> str:
        self.cuts.append({"at": pointer, "shown": self._length, "whole": len(text)})
        return text[: self._length]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


_FORBIDDEN = 403
_NEEDS_TOKEN = "urn:ratchet:problem:project-token-needed"


class CallRefused(RatchetError):
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

    def _refused(self, reply: Reply) -> CallRefused:
        problem = reply.json()
        hint = (
            self.token_hint
            if problem.get("type") == _NEEDS_TOKEN and self.token_hint
            else problem.get("hint")
        )
        return CallRefused(problem["detail"], hint=hint)


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
