"""Everything that the MCP face offers, and how it is called. What this knows of MCP is only its schemas."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI

from ratchet.engines.answer import misfits
from ratchet.kernel import Misuse
from ratchet.ledger import Ledger
from ratchet.runtime import anybody_works
from ratchet.server.mcp.acting_tools import ACTING
from ratchet.server.mcp.asking import Asker
from ratchet.server.mcp.endpoints import Document, endpoints_of
from ratchet.server.mcp.extra_tools import part_tool, protocol_log_tool, waiting_tool
from ratchet.server.mcp.fitting import CUT, fitting, free_names
from ratchet.server.mcp.offered import Given, Offered, Told, offered
from ratchet.server.mcp.reading_tools import READING
from ratchet.server.mcp.resources import Resource, find_resource, resource_of
from ratchet.server.project_scope import ALLOWED

_NOBODY_WORKS = "Nobody works on this ledger now, so it waits: `ratchet worker` or `ratchet serve` does it."
_NOTE: Document = {
    "type": ["string", "null"],
    "description": "what to know besides: whether nobody is there to do it",
}


class Face:
    """The tools and resources on one API. Without `allow_actions` there is no way to change anything."""

    def __init__(self, app: FastAPI, ledger: Ledger, *, allow_actions: bool) -> None:
        self._ledger = ledger
        endpoints = endpoints_of(app, [*READING, *(ACTING if allow_actions else ())])
        reading = {each.declared.name: offered(each) for each in endpoints if each.declared.reads}
        acting = [offered(each) for each in endpoints if not each.declared.reads]
        log = protocol_log_tool(reading["get_protocol"], ledger)
        reading[log.declared.name] = log
        more = [waiting_tool(reading["get_run"], ledger), part_tool(dict(reading), _checked)]
        tools = [*reading.values(), *more, *acting]
        self.tools: Mapping[str, Offered] = {each.declared.name: each for each in tools}
        self.resources: Sequence[Resource] = [
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

    async def read(self, asker: Asker, uri: str) -> tuple[Resource, Told]:
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
    extra = declared.name in ("read_part", "read_protocol_log")
    return extra or (declared.method, declared.path) in ALLOWED


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
