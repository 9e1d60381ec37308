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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from ratchet.config.workflow_settings import Tools
from ratchet.engines.endpoint import HiddenKeys
from ratchet.kernel import decoded
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult, ToolUse, variable
from ratchet.tools.definition import OpenApiBody, Tool
from ratchet.tools.definition_file import loaded_yaml
from ratchet.tools.openapi import OperationRequest, find_operation, question, server_of
from ratchet.tools.programs import TIMED_OUT, most_output

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
    """What is to be sent besides the question. Raises `ToolCallFailed`.

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
    raise ToolCallFailed(
        f"openapi.auth has the type {kind!r}", hint="use bearer, basic, api_key or none", final=True
    )


def _variable_of(auth: Mapping[str, Any]) -> str:
    for key in _NAMES:
        if isinstance(found := auth.get(key), str):
            return found.strip().lstrip("$").strip("{}")
    for key in _VALUES:
        if isinstance(found := auth.get(key), str) and (named := _REFERENCE.fullmatch(found.strip())):
            return named[1]
    raise ToolCallFailed(
        "openapi.auth does not name the variable that holds the secret",
        hint="set openapi.auth.variable to its name; a secret itself must not stand in a definition",
        final=True,
    )


async def call_web(
    tool: Tool, body: OpenApiBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    """What the service answers, as JSON if it is that, else as text. Raises `ToolCallFailed`."""
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
                raise ToolCallFailed(
                    f"tool {tool.id} does not say where the service is",
                    hint="set openapi.base_url",
                    final=True,
                )
            request = await _request(http, base, asked, who, named=body.base_url is not None)
            status, content, kind = await _answer(http, request, most_output(tool, occasion))
    except ToolCallFailed as error:
        error.args = (f"tool {tool.id}: {who.secrets.hide(str(error))}",)
        raise
    except TimeoutError:
        raise ToolCallFailed(
            f"tool {tool.id}: no answer within {seconds:g} s",
            hint="raise its timeout",
            use=ToolUse(_since(began), exit_code=TIMED_OUT),
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        reason = who.secrets.hide(f"{type(error).__name__}: {error}")
        raise ToolCallFailed(
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
        raise ToolCallFailed(f"{str(url)[:200]} is not the address of a service", final=True)
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
        raise ToolCallFailed(
            f"{host} is the address {address}, which is not one of the internet",
            hint="if that is meant, name the address itself in openapi.base_url",
            final=True,
        )


async def _answer(http: httpx2.AsyncClient, request: httpx2.Request, most: int) -> tuple[int, bytes, str]:
    response = await http.send(request, stream=True)
    try:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ToolCallFailed("the service sends a compressed answer, which was not asked for")
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > most:
                raise ToolCallFailed(
                    f"the service sends more than {most} bytes", hint="raise its constraints.max_output_bytes"
                )
        return response.status_code, bytes(content), response.headers.get("content-type", "")
    finally:
        await response.aclose()


async def _fetched_spec(tool: Tool, url: str, http: httpx2.AsyncClient) -> Mapping[str, Any]:
    if not tool.network:
        raise ToolCallFailed(
            "its description would have to be fetched, but the tool does not declare the network",
            hint="set `network: true`, or save the description and name it in spec_path",
            final=True,
        )
    request = await _pinned(http, "GET", httpx2.URL(url), {"accept": "*/*"}, None, named=True)
    status, content, _ = await _answer(http, request, _SPEC_BYTES)
    spec = loaded_yaml(decoded(content)) if status == 200 else None
    if not isinstance(spec, dict):
        raise ToolCallFailed(f"there is no description at {url} (HTTP {status})")
    return spec


def _refused(tool: Tool, status: int, content: bytes, secrets: HiddenKeys, use: ToolUse) -> ToolCallFailed:
    said = secrets.hide(decoded(content[:_SHOWN]))
    if 300 <= status < 400:
        return ToolCallFailed(
            f"tool {tool.id}: the service redirects elsewhere (HTTP {status}), which is not followed",
            hint="put the address that it redirects to into openapi.base_url",
            use=use,
            final=True,
        )
    return ToolCallFailed(
        f"tool {tool.id}: the service answered HTTP {status}: {said or 'nothing'}",
        hint="check openapi.auth and its variable" if status in (401, 403) else None,
        use=use,
        said=said,
        final=status not in _BUSY,
    )


def _value(content: bytes, kind: str) -> Any:
    text = decoded(content)
    if not text.strip():
        return None
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        if "json" in kind:
            raise ToolCallFailed(
                f"the service says that it sends JSON, but sends {text[:_SHOWN]!r}"
            ) from None
        return text


def _since(began: float) -> float:
    return (time.monotonic() - began) * 1000
