"""Tools that can be called: what a client is told of them, and what runs."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts

from ratchet.kernel import Misuse, text_decoder
from ratchet.operations import Operation
from ratchet.server.mcp.api import LONGEST_ANSWER, Asker, Question, Reply

Schema = Mapping[str, Any]

"""Characters of an answer: a model reads it, and many clients take no more."""

LONGEST_TEXT = 20_000
"""Characters of a text that are sent at once unless more are asked for."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A tool that is an endpoint of the API: it takes what that takes, may what that may, and answers the same.

    `without` are arguments of the endpoint that are not offered, and `narrowed` those with other bounds. One that
    `reads` changes nothing, which also makes it a resource unless it `is_resource` no. `repeatable` ones change nothing
    more when they are called again, and `destructive` ones end or remove something for good, or may do anything at all.
    `outside` ones reach programs and models beyond the ledger, and what `queues` work leaves it to a worker.
    """

    name: str
    title: str
    description: str
    endpoint: str
    reads: bool = False
    is_resource: bool = True
    without: frozenset[str] = frozenset()
    narrowed: Mapping[str, Schema] = field(default_factory=dict)
    repeatable: bool = False
    destructive: bool = False
    outside: bool = False
    queues: bool = False

    @classmethod
    def of(cls, operation: Operation[..., Any]) -> Declared | None:
        """The tool that an operation is declared as, if it is."""
        if operation.tool is None:
            return None
        given = asdict(operation.tool)
        if operation.reads:
            given |= {"reads": True, "repeatable": True}
        return cls(description=" ".join(operation.help.split()), endpoint=operation.api, **given)

    @property
    def method(self) -> str:
        return self.endpoint.split()[0]

    @property
    def path(self) -> str:
        return self.endpoint.split()[1]


Document = dict[str, Any]
_REF = "#/components/schemas/"
_NO_CONTENT = "204"
_MOST_ITEMS, _USUAL_ITEMS = 100, 20
# How a list that is no page tells where its next one begins.
CURSORS = ("before", "after", "since")
_LIMIT: Document = {
    "type": "integer",
    "minimum": 1,
    "maximum": _MOST_ITEMS,
    "default": _USUAL_ITEMS,
    "description": "how many at most",
}


class Answer(StrEnum):
    """What an endpoint answers with: a thing, a list of things, things by names of somebody's own, text, or nothing."""

    THING = "thing"
    LIST = "list"
    MAP = "map"
    TEXT = "text"
    NOTHING = "nothing"


def _object(**properties: Document) -> Document:
    return {"type": "object", "properties": properties, "required": [*properties]}


_NEXT: Document = {
    "type": ["integer", "string", "null"],
    "description": "pass it on for the next page; null at the end",
}
TEXT_PART = _object(
    text={"type": "string"},
    next_offset={"type": ["integer", "null"], "description": "where to continue; null at the end"},
    size={"type": "integer", "description": "of the whole, in the unit of the offsets"},
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint as a tool sees it. `places` says for each argument whether it is in the path, the query or the body.

    `schema` is that of an object: a list is in its `items`, a map is its `value`.
    """

    declared: Declared
    arguments: Document
    places: Mapping[str, str]
    answer: Answer
    schema: Document


def endpoints_of(app: FastAPI, declared: Iterable[Declared]) -> list[Endpoint]:
    """The endpoints that these tools are. Raises `KeyError` for one that there is not."""
    tools = list(declared)
    wanted = {(tool.method, tool.path) for tool in tools}
    routes = [
        each
        for each in iter_route_contexts(app.routes)
        if any((method, each.path) in wanted for method in each.methods or ())
    ]
    document = get_openapi(title=app.title, version=app.version, routes=routes)
    schemas = document["components"]["schemas"]
    return [
        _endpoint(tool, document["paths"][tool.path.replace(":path}", "}")][tool.method.lower()], schemas)
        for tool in tools
    ]


def _endpoint(tool: Declared, operation: Document, schemas: Document) -> Endpoint:
    properties: Document = {}
    places: dict[str, str] = {}
    required: list[str] = []
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        if parameter["in"] == "header" or name in tool.without:
            continue
        properties[name], places[name] = parameter["schema"], parameter["in"]
        if parameter["required"]:
            required.append(name)
    body = _body(operation, schemas)
    for name, schema in body.get("properties", {}).items():
        if name not in tool.without:
            properties[name], places[name] = schema, "body"
            if name in body.get("required", ()):
                required.append(name)
    arguments = {
        "type": "object",
        "properties": {
            name: _argument(name, schema, schemas) | dict(tool.narrowed.get(name, {}))
            for name, schema in properties.items()
        },
        "required": required,
        "additionalProperties": False,
    }
    answer, schema = _answer(operation, schemas)
    return Endpoint(tool, arguments, places, answer, schema)


def _body(operation: Document, schemas: Document) -> Document:
    content = operation.get("requestBody", {}).get("content", {})
    found: Document = content.get("application/json", {}).get("schema", {})
    inlined: Document = _inlined(_present(found), schemas)
    return inlined


def _argument(name: str, schema: Document, schemas: Document) -> Document:
    inlined = _inlined(_present(schema), schemas)
    # The API takes any number here and brings it into its own bounds; a model is told what it gets.
    return dict(_LIMIT) if name == "limit" and "maximum" not in inlined else inlined


def _present(schema: Document) -> Document:
    """The schema of a value that is given: what may be null may as well be left out."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) != 1:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**choices[0], **rest}


def _inlined(schema: Any, schemas: Document) -> Any:
    """Without references and without names that only repeat the argument's: some clients know neither."""
    if isinstance(schema, list):
        return [_inlined(each, schemas) for each in schema]
    if isinstance(schema, float) and schema.is_integer():
        # OpenAPI's bounds are all floats.
        return int(schema)
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _inlined({**schemas[schema["$ref"].removeprefix(_REF)], **rest}, schemas)
    return {key: _inlined(value, schemas) for key, value in schema.items() if not _is_noise(key, value)}


def _is_noise(key: str, value: Any) -> bool:
    # A property may be called `title`, too, and then it is a schema.
    return key in ("title", "examples") and not isinstance(value, dict)


def _answer(operation: Document, schemas: Document) -> tuple[Answer, Document]:
    status, succeeded = next(each for each in operation["responses"].items() if each[0].startswith("2"))
    if status == _NO_CONTENT:
        return Answer.NOTHING, _object(done={"const": True})
    content = succeeded.get("content", {})
    if "application/json" not in content:
        return Answer.TEXT, TEXT_PART
    schema = content["application/json"]["schema"]
    if schema.get("type") == "array":
        return Answer.LIST, _self_contained(_object(items=schema, next=_NEXT), schemas)
    if "$ref" in schema or "anyOf" in schema:
        return Answer.THING, _self_contained(schema, schemas)
    return Answer.MAP, _self_contained(_object(value=schema), schemas)


def _self_contained(schema: Document, schemas: Document) -> Document:
    """The schema as an object that brings along what it refers to."""
    found: dict[str, Document] = {}
    root = copy.deepcopy(schema)
    while "$ref" in root:
        root = copy.deepcopy(schemas[root["$ref"].removeprefix(_REF)])
    root = _pointing_inside(root, schemas, found)
    return {**root, "type": "object", **({"$defs": found} if found else {})}


def _pointing_inside(schema: Any, schemas: Document, found: dict[str, Document]) -> Any:
    if isinstance(schema, list):
        return [_pointing_inside(each, schemas, found) for each in schema]
    if not isinstance(schema, dict):
        return schema
    told = {
        key: _pointing_inside(value, schemas, found)
        for key, value in schema.items()
        if not _is_noise(key, value)
    }
    reference = told.get("$ref")
    if isinstance(reference, str) and reference.startswith(_REF):
        name = reference.removeprefix(_REF)
        if name not in found:
            found[name] = {}
            found[name] = _pointing_inside(schemas[name], schemas, found)
        told["$ref"] = f"#/$defs/{name}"
    return told


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
        return _document(endpoint, given, await asker.ask(_question(endpoint, given)))

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


def _document(endpoint: Endpoint, given: Given, reply: Reply) -> Told:
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
    decoder = text_decoder()
    text = decoder.decode(reply.body, final=end >= reply.size)
    end -= len(decoder.getstate()[0])
    return {"text": text, "next_offset": end if end < reply.size else None, "size": reply.size}
