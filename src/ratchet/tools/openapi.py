"""Reading what a web service offers: its operations, as an OpenAPI description has them. Exports carry this file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ratchet.tools.call import ToolCallFailed

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_DIRECT = re.compile(r"(GET|PUT|POST|DELETE|OPTIONS|HEAD|PATCH) +(/\S*)", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_DEEPEST = 20
_LISTED = 20
# These are the connection's own.
_NOT_TO_BE_SET = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "cookie"})


@dataclass(frozen=True, slots=True)
class WebParameter:
    name: str
    place: str
    required: bool


@dataclass(frozen=True, slots=True)
class WebOperation:
    """`described` is false for one known by name only: then what is no part of the path goes where it fits."""

    method: str
    path: str
    parameters: tuple[WebParameter, ...] = ()
    takes_body: bool = False
    described: bool = True


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """What is sent: the path with its values, and the rest."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    body: Any


def find_operation(spec: Mapping[str, Any] | None, wanted: str | None) -> WebOperation:
    """The operation with the id `wanted`, or `GET /path`; the only one if none is named. Raises `ToolCallFailed`."""
    direct = _DIRECT.fullmatch(wanted or "")
    if spec is None:
        if direct is None:
            raise ToolCallFailed(
                f"the service has no description, so {wanted!r} names no operation of it",
                hint="name it as `GET /path/{id}`, or give the tool a spec_path",
                final=True,
            )
        return WebOperation(direct[1].upper(), direct[2], described=False)
    listed = list(_operations(spec))
    if wanted is None and len(listed) == 1:
        return listed[0][1]
    for name, operation in listed:
        if wanted in (name, f"{operation.method} {operation.path}"):
            return operation
    names = ", ".join(name for name, _ in listed[:_LISTED])
    asked = "the inputs name no operation" if wanted is None else f"there is no operation {wanted!r}"
    raise ToolCallFailed(
        f"{asked}; the service has: {names or 'none'}", hint="give the input `operation`", final=True
    )


def server_of(spec: Mapping[str, Any] | None) -> str | None:
    """The address that the description names, if it is a whole one."""
    servers = (spec or {}).get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    url = first.get("url") if isinstance(first, Mapping) else None
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else None


def question(operation: WebOperation, values: Mapping[str, Any]) -> OperationRequest:
    """The inputs, each in its place. Raises `ToolCallFailed` for one that is missing or has no place."""
    rest = dict(values)
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    parts: dict[str, str] = {}
    for each in operation.parameters:
        if each.name not in values:
            if each.required:
                raise ToolCallFailed(f"{_named(operation)} needs the input {each.name!r}", final=True)
            continue
        value = values[each.name]
        rest.pop(each.name, None)
        match each.place:
            case "path":
                parts[each.name] = _plain(value)
            case "query":
                query += [(each.name, _plain(one)) for one in (value if isinstance(value, list) else [value])]
            case "header" if each.name.lower() not in _NOT_TO_BE_SET:
                headers[each.name] = _plain(value)
            case _:
                raise ToolCallFailed(
                    f"{_named(operation)}: {each.place} {each.name!r} cannot be sent", final=True
                )
    path = _PLACEHOLDER.sub(lambda found: _part(found[1], parts, rest, operation), operation.path)
    body = None
    if operation.takes_body or (
        not operation.described and operation.method not in ("GET", "HEAD", "DELETE")
    ):
        body = rest.pop("body", None)
        if body is None and rest:
            body, rest = rest, {}
    elif not operation.described:
        query += [(name, _plain(value)) for name, value in rest.items()]
        rest = {}
    if rest:
        raise ToolCallFailed(
            f"{_named(operation)} takes no input {', '.join(map(repr, sorted(rest)))}", final=True
        )
    return OperationRequest(operation.method, path, tuple(query), headers, body)


def _operations(spec: Mapping[str, Any]) -> Iterator[tuple[str, WebOperation]]:
    paths = spec.get("paths")
    for path, item in (paths if isinstance(paths, Mapping) else {}).items():
        item = _resolved(item, spec)
        shared = item.get("parameters")
        for method in _METHODS:
            if not isinstance(found := item.get(method), Mapping):
                continue
            name = found.get("operationId") or f"{method.upper()} {path}"
            own = found.get("parameters")
            listed = [*(shared if isinstance(shared, list) else ()), *(own if isinstance(own, list) else ())]
            by_place = {
                (str(each.get("name")), str(each.get("in"))): bool(each.get("required"))
                for each in (_resolved(one, spec) for one in listed)
            }
            parameters = tuple(WebParameter(*key, required) for key, required in by_place.items())
            # The second version of the format has the body among the parameters.
            in_body = any(each.place == "body" for each in parameters)
            yield (
                str(name),
                WebOperation(
                    method.upper(),
                    str(path),
                    tuple(each for each in parameters if each.place != "body"),
                    in_body or isinstance(found.get("requestBody"), Mapping),
                ),
            )


def _resolved(value: Any, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """`value`, or what its `$ref` leads to inside the description. Nothing is fetched."""
    for _ in range(_DEEPEST):
        if not isinstance(value, Mapping):
            return {}
        reference = value.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return value
        value = spec
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            value = value.get(key) if isinstance(value, Mapping) else None
    return {}


def _part(name: str, parts: Mapping[str, str], rest: dict[str, Any], operation: WebOperation) -> str:
    value = parts.get(name)
    if value is None and name in rest:
        value = _plain(rest.pop(name))
    if value is None:
        raise ToolCallFailed(f"{_named(operation)} needs the input {name!r}", final=True)
    if value in ("", ".", ".."):
        raise ToolCallFailed(f"{_named(operation)}: {value!r} cannot be the {name} of a path", final=True)
    return quote(value, safe="")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        raise ToolCallFailed(f"{str(value)[:100]} cannot be part of an address", final=True)
    return "" if value is None else str(value)


def _named(operation: WebOperation) -> str:
    return f"{operation.method} {operation.path}"
