"""Everything that the MCP face offers, and how it is called. What this knows of MCP is only its schemas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from fastapi import FastAPI

from ratchet.engines.engine import misfits
from ratchet.kernel import Misuse, RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.ledger import run_at_rest
from ratchet.runtime import anybody_works
from ratchet.server.every_operation import EVERY
from ratchet.server.fields import MAX_ID
from ratchet.server.mcp.api import CUT, LONGEST_ANSWER, Asker, as_text, at, fitting, free_names
from ratchet.server.mcp.tool import (
    CURSORS,
    LONGEST_TEXT,
    TEXT_PART,
    Declared,
    Document,
    Given,
    Offered,
    Told,
    endpoints_of,
    offered,
)
from ratchet.server.project_scope import ALLOWED

_OPERATIONS = [tool for tool in map(Declared.of, EVERY) if tool is not None]
# What answers with text is no operation.
_TEXTS = (
    (
        "read_attempt_diff",
        "Read the change of an attempt",
        "What an attempt changed, kept or not, as a patch.",
        "GET /attempts/{attempt_id}/diff",
    ),
    (
        "read_artifact",
        "Read an artifact",
        "The content of an artifact as text, a part at a time.",
        "GET /artifacts/{sha256}",
    ),
    (
        "read_trial_diff",
        "Read the change of a trial",
        "How the files of a trial differ from those of its parent, as a patch.",
        "GET /research/{run}/trials/{exp}/diff",
    ),
    (
        "read_research_report",
        "Read the report of a research run",
        "A research run as one HTML page for a person, a part at a time; get_research says the same in short.",
        "GET /research/{run}/report",
    ),
)
READING = (
    *(Declared(*each, reads=True, repeatable=True) for each in _TEXTS),
    *(tool for tool in _OPERATIONS if tool.reads),
)
ACTING = tuple(tool for tool in _OPERATIONS if not tool.reads)


_LONGEST_WAIT = 3600
_USUAL_WAIT = 30
_ID: Document = {"type": "integer", "minimum": 1, "maximum": MAX_ID}


def waiting_tool(get_run: Offered, ledger: Ledger) -> Offered:
    """`get_run`, once the run stops or the time is over."""

    async def run(asker: Asker, given: Given) -> Told:
        asked = {"run_id": given["run_id"]}
        # Asked first: it tells whether there is such a run, and whether the caller may see it.
        found = await get_run.run(asker, asked)
        await run_at_rest(ledger, found["id"], given.get("seconds", _USUAL_WAIT))
        now = await get_run.run(asker, asked)
        return {**now, "stopped": RunStatus(now["status"]).stands}

    return Offered(
        Declared(
            "wait_for_run",
            "Wait for a run",
            "Wait until a run of any kind has ended, is paused or blocked, and show it; after `seconds` as it is then. "
            "Call it again until `stopped` is true. Stay below the time that your client gives a tool, often 60 s.",
            "GET /runs/{run_id}",
            reads=True,
            is_resource=False,
            repeatable=True,
        ),
        _object(
            {
                "run_id": _ID,
                "seconds": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": _LONGEST_WAIT,
                    "default": _USUAL_WAIT,
                    "description": "how long to wait at most",
                },
            },
            "run_id",
        ),
        {
            **get_run.answer,
            "properties": {
                **get_run.answer["properties"],
                "stopped": {"type": "boolean", "description": "whether nothing happens any more by itself"},
            },
            "required": [*get_run.answer["required"], "stopped"],
        },
        run,
    )


def part_tool(tools: Mapping[str, Offered], checked: Callable[[Offered, Given], Given]) -> Offered:
    """The rest of what another reading tool has cut. `checked` makes sure of that tool's arguments."""

    async def run(asker: Asker, given: Given) -> Told:
        name = given["tool"]
        if name not in tools:
            raise Misuse(f"{name[:80]!r} is no reading tool", hint=f"there are: {', '.join(tools)}")
        answer = await tools[name].run(asker, checked(tools[name], given.get("arguments", {})))
        try:
            found = at(answer, given.get("at", ""))
        except (KeyError, IndexError, TypeError, ValueError):
            raise Misuse(
                f"the answer of {name} has nothing at {given['at'][:80]!r}", hint="take `at` from its `cut`"
            ) from None
        text = as_text(found)
        begin = given.get("offset", 0)
        end = begin + given.get("length", LONGEST_TEXT)
        return {"text": text[begin:end], "next_offset": end if end < len(text) else None, "size": len(text)}

    return Offered(
        Declared(
            "read_part",
            "Read the rest of an answer",
            "A part of a text that another reading tool has cut, or of an answer that was too long: name the tool, its "
            "arguments and, from its `cut`, where the text is. Offsets count characters.",
            "GET /",
            reads=True,
            is_resource=False,
            repeatable=True,
        ),
        _object(
            {
                "tool": {"type": "string", "maxLength": 100, "description": "the tool that was called"},
                "arguments": {"type": "object", "default": {}, "description": "what it was called with"},
                "at": {
                    "type": "string",
                    "maxLength": 1000,
                    "default": "",
                    "description": "a JSON pointer into its answer; all of it as JSON, if empty",
                },
                "offset": {"type": "integer", "minimum": 0, "default": 0},
                "length": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": LONGEST_ANSWER // 2,
                    "default": LONGEST_TEXT,
                },
            },
            "tool",
        ),
        TEXT_PART,
        run,
    )


def _object(properties: Document, *required: str) -> Document:
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


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
