"""What endpoints of the API take and answer, as the schemas of tools."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts

from ratchet.server.mcp.declared import Declared

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
    next_offset={"type": ["integer", "null"], "description": "where to go on; null at the end"},
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
        _endpoint(tool, document["paths"][_plain(tool.path)][tool.method.lower()], schemas) for tool in tools
    ]


def _plain(path: str) -> str:
    return path.replace(":path}", "}")


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
        "properties": {name: _argument(name, schema, schemas) for name, schema in properties.items()}
        | {name: dict(schema) for name, schema in tool.narrowed.items()},
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
