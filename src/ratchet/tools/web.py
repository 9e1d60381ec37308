"""Tools that are web services: one request of an operation that an OpenAPI description has, and its answer.

The request is made by this process, so it is guarded: it goes to the address that the tool names and to no other, no
redirect is followed, and a name of the internet must not lead to a machine of the house.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import ipaddress
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx2

from ratchet.config.workflow_settings import Tools
from ratchet.engines.endpoint import HiddenKeys
from ratchet.tools.call import Occasion, ToolFailed, ToolResult, ToolUse, variable
from ratchet.tools.definition import OpenApiBody, Tool
from ratchet.tools.definition_file import loaded_yaml
from ratchet.tools.programs import TIMED_OUT, most_output

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
    """The operation with the id `wanted`, or `GET /path`; the only one if none is named. Raises `ToolFailed`."""
    direct = _DIRECT.fullmatch(wanted or "")
    if spec is None:
        if direct is None:
            raise ToolFailed(
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
    raise ToolFailed(
        f"{asked}; the service has: {names or 'none'}", hint="give the input `operation`", final=True
    )


def server_of(spec: Mapping[str, Any] | None) -> str | None:
    """The address that the description names, if it is a whole one."""
    servers = (spec or {}).get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    url = first.get("url") if isinstance(first, Mapping) else None
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else None


def question(operation: WebOperation, values: Mapping[str, Any]) -> OperationRequest:
    """The inputs, each in its place. Raises `ToolFailed` for one that is missing or has no place."""
    rest = dict(values)
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    parts: dict[str, str] = {}
    for each in operation.parameters:
        if each.name not in values:
            if each.required:
                raise ToolFailed(f"{_named(operation)} needs the input {each.name!r}", final=True)
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
                raise ToolFailed(
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
        raise ToolFailed(
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
        raise ToolFailed(f"{_named(operation)} needs the input {name!r}", final=True)
    if value in ("", ".", ".."):
        raise ToolFailed(f"{_named(operation)}: {value!r} cannot be the {name} of a path", final=True)
    return quote(value, safe="")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        raise ToolFailed(f"{str(value)[:100]} cannot be part of an address", final=True)
    return "" if value is None else str(value)


def _named(operation: WebOperation) -> str:
    return f"{operation.method} {operation.path}"


_NAMES = (
    "variable",
    "env",
    "env_var",
    "token_env",
    "key_env",
    "api_key_env",
    "token_variable",
    "key_variable",
)
_VALUES = ("token", "api_key", "key", "value", "credentials")
_REFERENCE = re.compile(r"\$\{?(\w+)\}?")
_SPEC_BYTES = 16 * 1024 * 1024
_SHOWN = 500
_CONNECT_SECONDS = 10.0
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Credentials:
    headers: Mapping[str, str] = field(default_factory=dict)
    query: tuple[tuple[str, str], ...] = ()
    secrets: HiddenKeys = field(default_factory=lambda: HiddenKeys(()))


def credentials(auth: Mapping[str, Any], settings: Tools) -> Credentials:
    """What is to be sent besides the question. Raises `ToolFailed`.

    `type` is `bearer`, `basic` (a variable with `user:password` in it) or `api_key`, which goes into the header or,
    with `in: query`, into the parameter that is called `name`.
    """
    kind = str(auth.get("type") or ("bearer" if auth else "none")).lower().replace("-", "_")
    if kind == "none":
        return Credentials()
    secret = variable(_variable_of(auth), settings)
    hidden = HiddenKeys([secret, base64.b64encode(secret.encode()).decode()])
    name = auth.get("name") or auth.get("header") or auth.get("header_name") or auth.get("param")
    match kind:
        case "bearer" | "token" | "oauth2":
            return Credentials({"authorization": f"Bearer {secret}"}, secrets=hidden)
        case "basic":
            encoded = base64.b64encode(secret.encode()).decode()
            return Credentials({"authorization": f"Basic {encoded}"}, secrets=hidden)
        case "api_key" | "apikey" | "header":
            if auth.get("in") == "query" or auth.get("location") == "query":
                return Credentials(query=((str(name or "api_key"), secret),), secrets=hidden)
            return Credentials({str(name or "X-API-Key"): secret}, secrets=hidden)
    raise ToolFailed(
        f"openapi.auth has the type {kind!r}", hint="use bearer, basic, api_key or none", final=True
    )


def _variable_of(auth: Mapping[str, Any]) -> str:
    for key in _NAMES:
        if isinstance(found := auth.get(key), str):
            return found.strip().lstrip("$").strip("{}")
    for key in _VALUES:
        if isinstance(found := auth.get(key), str) and (named := _REFERENCE.fullmatch(found.strip())):
            return named[1]
    raise ToolFailed(
        "openapi.auth does not name the variable that holds the secret",
        hint="set openapi.auth.variable to its name; a secret itself must not stand in a definition",
        final=True,
    )


async def call_web(
    tool: Tool, body: OpenApiBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    """What the service answers, as JSON if it is that, else as text. Raises `ToolFailed`."""
    settings = occasion.runtime.settings.tools
    given = {name: value for name, value in values.items() if name != "operation"}
    wanted = values.get("operation", body.operation)
    who = credentials(body.auth, settings)
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds), _client(seconds) as http:
            spec = body.spec
            if spec is None and body.spec_url is not None:
                spec = await _fetched_spec(tool, body.spec_url, http)
            asked = question(find_operation(spec, wanted if isinstance(wanted, str) else None), given)
            base = body.base_url or server_of(spec)
            if base is None:
                raise ToolFailed(
                    f"tool {tool.id} does not say where the service is",
                    hint="set openapi.base_url",
                    final=True,
                )
            request = await _request(http, base, asked, who, named=body.base_url is not None)
            status, content, kind = await _answer(http, request, most_output(tool, occasion))
    except ToolFailed as error:
        error.args = (f"tool {tool.id}: {who.secrets.hide(str(error))}",)
        raise
    except TimeoutError:
        raise ToolFailed(
            f"tool {tool.id}: no answer within {seconds:g} s",
            hint="raise its timeout",
            use=ToolUse(_since(began), exit_code=TIMED_OUT),
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        reason = who.secrets.hide(f"{type(error).__name__}: {error}")
        raise ToolFailed(
            f"tool {tool.id}: the service cannot be reached: {reason}", use=ToolUse(_since(began))
        ) from None
    use = ToolUse(_since(began))
    if not 200 <= status < 300:
        raise _refused(tool, status, content, who.secrets, use)
    return ToolResult(_value(content, kind), use)


def _client(seconds: float) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        verify=_certificates(),
        timeout=httpx2.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds)),
        follow_redirects=False,
        # A proxy would look up names by itself, and go where this must not.
        trust_env=False,
    )


@functools.cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


async def _request(
    http: httpx2.AsyncClient, base: str, asked: OperationRequest, who: Credentials, *, named: bool
) -> httpx2.Request:
    url = httpx2.URL(f"{base.rstrip('/')}{asked.path}")
    query = (*url.params.multi_items(), *asked.query, *who.query)
    body = None if asked.body is None else json.dumps(asked.body, allow_nan=False).encode()
    headers = {"content-type": "application/json"} if body is not None else {}
    return await _pinned(
        http,
        asked.method,
        url.copy_with(params=query) if query else url,
        {**headers, **asked.headers, **who.headers},
        body,
        named=named,
    )


async def _pinned(
    http: httpx2.AsyncClient,
    method: str,
    url: httpx2.URL,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    named: bool,
) -> httpx2.Request:
    """A request to the one address that the host has now, so that it cannot be another one when it is sent."""
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise ToolFailed(f"{str(url)[:200]} is not the address of a service", final=True)
    port = url.port or (443 if url.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    address = str(found[0][4][0])
    check_address(url.host, address, named=named)
    return http.build_request(
        method,
        url.copy_with(host=address),
        headers={
            "accept": "application/json",
            **headers,
            "host": url.netloc.decode("ascii"),
            # A little that is compressed may unfold to a lot.
            "accept-encoding": "identity",
        },
        content=body,
        extensions={"sni_hostname": url.host} if url.scheme == "https" else {},
    )


def check_address(host: str, address: str, *, named: bool) -> None:
    """Machines of the house are reached only if the tool's own base_url names them: by address, or in one word."""
    place = ipaddress.ip_address(address.partition("%")[0])
    literal = host == address or "." not in host
    if place.is_link_local or place.is_multicast or not (place.is_global or (named and literal)):
        raise ToolFailed(
            f"{host} is the address {address}, which is not one of the internet",
            hint="if that is meant, name the address itself in openapi.base_url",
            final=True,
        )


async def _answer(http: httpx2.AsyncClient, request: httpx2.Request, most: int) -> tuple[int, bytes, str]:
    response = await http.send(request, stream=True)
    try:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ToolFailed("the service sends a compressed answer, which was not asked for")
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > most:
                raise ToolFailed(
                    f"the service sends more than {most} bytes", hint="raise its constraints.max_output_bytes"
                )
        return response.status_code, bytes(content), response.headers.get("content-type", "")
    finally:
        await response.aclose()


async def _fetched_spec(tool: Tool, url: str, http: httpx2.AsyncClient) -> Mapping[str, Any]:
    if not tool.network:
        raise ToolFailed(
            "its description would have to be fetched, but the tool does not declare the network",
            hint="set `network: true`, or save the description and name it in spec_path",
            final=True,
        )
    request = await _pinned(http, "GET", httpx2.URL(url), {"accept": "*/*"}, None, named=True)
    status, content, _ = await _answer(http, request, _SPEC_BYTES)
    spec = loaded_yaml(content.decode(errors="replace")) if status == 200 else None
    if not isinstance(spec, dict):
        raise ToolFailed(f"there is no description at {url} (HTTP {status})")
    return spec


def _refused(tool: Tool, status: int, content: bytes, secrets: HiddenKeys, use: ToolUse) -> ToolFailed:
    said = secrets.hide(content[:_SHOWN].decode(errors="replace"))
    if 300 <= status < 400:
        return ToolFailed(
            f"tool {tool.id}: the service redirects elsewhere (HTTP {status}), which is not followed",
            hint="put the address that it redirects to into openapi.base_url",
            use=use,
            final=True,
        )
    return ToolFailed(
        f"tool {tool.id}: the service answered HTTP {status}: {said or 'nothing'}",
        hint="check openapi.auth and its variable" if status in (401, 403) else None,
        use=use,
        said=said,
        final=status not in _BUSY,
    )


def _value(content: bytes, kind: str) -> Any:
    text = content.decode(errors="replace")
    if not text.strip():
        return None
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        if "json" in kind:
            raise ToolFailed(f"the service says that it sends JSON, but sends {text[:_SHOWN]!r}") from None
        return text


def _since(began: float) -> float:
    return (time.monotonic() - began) * 1000
