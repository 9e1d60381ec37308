"""Everything that the MCP face offers, and how it is called. What this knows of MCP is only its schemas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from fastapi import FastAPI

from ratchet.engines.engine import misfits
from ratchet.kernel import Misuse
from ratchet.ledger import Ledger
from ratchet.runtime import anybody_works
from ratchet.server.mcp.api import CUT, Asker, fitting, free_names
from ratchet.server.mcp.extra_tools import part_tool, waiting_tool
from ratchet.server.mcp.tool import CURSORS, Document, Given, Offered, Told, endpoints_of, offered
from ratchet.server.mcp.tools import ACTING, READING
from ratchet.server.project_scope import ALLOWED

SCHEME = "ratchet://"
_PLACE = re.compile(r"\{(\w+)(?::path)?\}")
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class ApiResource:
    """A reading tool under an address: the path of the API, and its other arguments as a query."""

    tool: Offered

    @property
    def template(self) -> str:
        """Its address as RFC 6570 has it."""
        more = [name for name in self.tool.arguments["properties"] if name not in self._places]
        return self._path + (f"{{?{','.join(more)}}}" if more else "")

    @property
    def uri(self) -> str | None:
        """The address, if there is only one."""
        return None if self._places else self._path

    @property
    def media_type(self) -> str:
        return "text/plain" if self.tool.is_text else "application/json"

    @property
    def _path(self) -> str:
        return SCHEME + _PLACE.sub(r"{\1}", self.tool.declared.path).removeprefix("/")

    @cached_property
    def _places(self) -> list[str]:
        return _PLACE.findall(self.tool.declared.path)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(_PLACE.sub(r"(?P<\1>[^/]+)", self.tool.declared.path.removeprefix("/")))

    def arguments(self, path: str) -> dict[str, str] | None:
        found = self._pattern.fullmatch(path)
        return None if found is None else {name: unquote(text) for name, text in found.groupdict().items()}

    def following(self, uri: str, told: Mapping[str, Any]) -> str | None:
        """Where the next page, or the next part of a text, is read."""
        for cursor, value in (
            ("offset", told.get("next_offset")),
            *((each, told.get("next")) for each in CURSORS),
        ):
            if value is not None and cursor in self.tool.arguments["properties"]:
                path, _, query = uri.partition("?")
                return f"{path}?{urlencode({**dict(parse_qsl(query)), cursor: value})}"
        return None

    @property
    def rank(self) -> int:
        """Those that name more of their path come first: `research/tasks` is no run."""
        return len(self._places)


def resource_of(tool: Offered) -> ApiResource:
    return ApiResource(tool)


def find_resource(resources: Iterable[ApiResource], uri: str) -> tuple[ApiResource, dict[str, Any]]:
    """The resource at an address, and the arguments in it. Raises `Misuse`."""
    path, _, query = uri.removeprefix(SCHEME).partition("?")
    if uri.startswith(SCHEME):
        for resource in sorted(resources, key=lambda each: each.rank):
            found = resource.arguments(path)
            if found is not None:
                given = {**dict(parse_qsl(query, keep_blank_values=True)), **found}
                return resource, {name: _read(resource, name, text) for name, text in given.items()}
    raise Misuse(
        f"there is no resource {uri[:200]!r}",
        hint="list the resources and their templates to see what there is",
    )


def _read(resource: ApiResource, name: str, text: str) -> Any:
    """The value that the tool takes; text that is none of it is left for the tool to refuse."""
    kind = resource.tool.arguments["properties"].get(name, {}).get("type")
    if kind == "boolean":
        return _WORDS.get(text, text)
    if kind == "integer" and text.isascii() and text.isdecimal():
        return int(text) if len(text) < 20 else text
    return text


_NOBODY_WORKS = "No worker runs on this ledger now, so it waits: `ratchet worker` or `ratchet serve` does it."
_NOTE: Document = {
    "type": ["string", "null"],
    "description": "what to know besides: whether no worker is there to do it",
}


class Face:
    """The tools and resources on one API. Without `allow_actions` there is no way to change anything."""

    def __init__(self, app: FastAPI, ledger: Ledger, *, allow_actions: bool) -> None:
        self._ledger = ledger
        endpoints = endpoints_of(app, [*READING, *(ACTING if allow_actions else ())])
        reading = {each.declared.name: offered(each) for each in endpoints if each.declared.reads}
        acting = [offered(each) for each in endpoints if not each.declared.reads]
        more = [waiting_tool(reading["get_run"], ledger), part_tool(dict(reading), _checked)]
        tools = [*reading.values(), *more, *acting]
        self.tools: Mapping[str, Offered] = {each.declared.name: each for each in tools}
        self.resources: Sequence[ApiResource] = [
            resource_of(each) for each in reading.values() if each.declared.is_resource
        ]

    def usable(self, *, by_operator: bool) -> Sequence[Offered]:
        """The tools for the operator, or for one who holds only the token of a project."""
        return [each for each in self.tools.values() if by_operator or _opened_by_project(each)]

    def schema_of_answer(self, tool: Offered) -> Document:
        more = {"cut": CUT, **({"note": _NOTE} if tool.declared.queues else {})}
        return {**tool.answer, "properties": {**tool.answer.get("properties", {}), **more}}

    async def call(self, asker: Asker, name: str, arguments: Given) -> Told:
        """What a tool answers, short enough to be read. Raises `RatchetError`."""
        tool = self._tool(name)
        told = await tool.run(asker, _checked(tool, arguments))
        if tool.declared.queues:
            told = {**told, "note": await asyncio.to_thread(self._note)}
        return fitting(told, free_names(tool.answer))

    async def read(self, asker: Asker, uri: str) -> tuple[ApiResource, Told]:
        """What a resource holds. Raises `RatchetError`."""
        resource, arguments = find_resource(self.resources, uri)
        return resource, await self.call(asker, resource.tool.declared.name, arguments)

    def _tool(self, name: str) -> Offered:
        if name in self.tools:
            return self.tools[name]
        if any(name == each.name for each in ACTING):
            raise Misuse(
                f"{name} changes things, and this server only reads",
                hint="start it with `ratchet mcp --allow-actions`",
            )
        raise Misuse(f"there is no tool {name[:80]!r}", hint=f"there are: {', '.join(self.tools)}")

    def _note(self) -> str | None:
        with self._ledger.read() as tx:
            return None if anybody_works(tx) else _NOBODY_WORKS


def _opened_by_project(tool: Offered) -> bool:
    declared = tool.declared
    return declared.name == "read_part" or (declared.method, declared.path) in ALLOWED


def _checked(tool: Offered, arguments: Given) -> dict[str, Any]:
    """The arguments, if they fit. Many clients say null for what they leave out."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        told = misfits(given, tool.arguments)
    except RecursionError:
        told = "they are nested too deeply"
    if told:
        raise Misuse(
            f"the arguments of {tool.declared.name} cannot be used: {told}",
            hint=f"it takes: {', '.join(tool.arguments['properties']) or 'none'}",
        )
    return given
