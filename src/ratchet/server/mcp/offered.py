"""Tools that can be called: what a client is told of them, and what runs."""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import Misuse
from ratchet.server.mcp.asking import Asker, Question, Reply
from ratchet.server.mcp.declared import LONGEST_ANSWER, LONGEST_TEXT, Declared
from ratchet.server.mcp.endpoints import CURSORS, Answer, Document, Endpoint

Given = Mapping[str, Any]
Told = dict[str, Any]
Run = Callable[[Asker, Given], Awaitable[Told]]

# The bytes of the widest character: with fewer, a part could be empty for ever.
_WIDEST = 4
_WINDOW: Document = {
    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "where to begin, in bytes"},
    "length": {
        "type": "integer",
        "minimum": _WIDEST,
        "maximum": LONGEST_ANSWER // 2,
        "default": LONGEST_TEXT,
        "description": "how many bytes at most",
    },
}


@dataclass(frozen=True, slots=True)
class Offered:
    declared: Declared
    arguments: Document
    answer: Document
    run: Run

    @property
    def is_text(self) -> bool:
        """Whether what it answers is text, and not a value."""
        return "text" in self.answer.get("properties", {})


def offered(endpoint: Endpoint) -> Offered:
    """The tool that an endpoint is."""
    arguments = endpoint.arguments
    if endpoint.answer is Answer.TEXT:
        arguments = {**arguments, "properties": {**arguments["properties"], **_WINDOW}}

    async def run(asker: Asker, given: Given) -> Told:
        return _told(endpoint, given, await asker.ask(_question(endpoint, given)))

    return Offered(endpoint.declared, arguments, endpoint.schema, run)


def _question(endpoint: Endpoint, given: Given) -> Question:
    usual = endpoint.arguments["properties"]
    chosen = {
        name: given.get(name, usual[name].get("default"))
        for name in endpoint.places
        if name in given or (endpoint.places[name] == "query" and "default" in usual[name])
    }
    by_place = {
        place: {name: value for name, value in chosen.items() if endpoint.places[name] == place}
        for place in ("path", "query", "body")
    }
    takes_body = "body" in endpoint.places.values()
    is_text = endpoint.answer is Answer.TEXT
    return Question(
        endpoint.declared.method,
        _filled(endpoint.declared.path, by_place["path"]),
        [(name, _in_query(value)) for name, value in by_place["query"].items()],
        by_place["body"] if takes_body else None,
        offset=given.get("offset", 0) if is_text else 0,
        length=given.get("length", LONGEST_TEXT) if is_text else None,
    )


def _filled(path: str, given: Given) -> str:
    for name, value in given.items():
        text = str(value)
        if f"{{{name}:path}}" in path:
            path = path.replace(f"{{{name}:path}}", text)
        elif "/" in text or not text:
            # It would be the path of something else.
            raise Misuse(f"{name} cannot be {text[:80]!r}", hint="a name is not empty and has no slash")
        else:
            path = path.replace(f"{{{name}}}", text)
    return path


def _in_query(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _told(endpoint: Endpoint, given: Given, reply: Reply) -> Told:
    match endpoint.answer:
        case Answer.NOTHING:
            return {"done": True}
        case Answer.TEXT:
            return _part(given.get("offset", 0), reply)
        case Answer.LIST:
            return {"items": reply.json(), "next": _next(reply)}
        case Answer.MAP:
            return {"value": reply.json()}
        case _:
            thing: Told = reply.json()
            return thing


def _next(reply: Reply) -> int | str | None:
    for cursor in CURSORS:
        if (found := reply.headers.get(f"x-next-{cursor}")) is not None:
            return int(found) if found.isdecimal() else found
    return None


def _part(offset: int, reply: Reply) -> Told:
    """A part of a text. It ends where a character does, so that the next part begins with one."""
    end = offset + len(reply.body)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(reply.body, final=end >= reply.size)
    end -= len(decoder.getstate()[0])
    return {"text": text, "next_offset": end if end < reply.size else None, "size": reply.size}
