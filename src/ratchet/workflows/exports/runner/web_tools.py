"""Tools that are web services: one request of an operation, and its answer."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.execution import Result
from ratchet.flowkit.spec import ToolDefinition
from ratchet.tools.call import ToolFailed
from ratchet.tools.openapi import find_operation, question, server_of

from .python_tools import OUTPUT_BYTES
from .sending import Unreachable, send

AUTH_KEYS = frozenset({"type", "variable", "name", "in"})
AUTH_TYPES = ("bearer", "basic", "api_key", "none")
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_SHOWN_CHARS = 300


async def call_service(tool: ToolDefinition, values: Mapping[str, Any], seconds: float) -> Result:
    """What the service answers, as JSON if it is that, else as text. Raises `StepFailed`."""
    body = tool.extra["openapi"]
    given = {name: value for name, value in values.items() if name != "operation"}
    wanted = values.get("operation", body.get("operation"))
    try:
        asked = question(find_operation(body.get("spec"), wanted if isinstance(wanted, str) else None), given)
    except ToolFailed as failed:
        raise StepFailed(f"tool {tool.tool_id}: {failed}", final=True, hint=failed.hint) from failed
    who = _credentials(body.get("auth") or {})
    base = str(body.get("base_url") or server_of(body.get("spec"))).rstrip("/")
    parameters = urlencode([*asked.query, *who.query])
    url = f"{base}{asked.path}" + (f"{'&' if '?' in base else '?'}{parameters}" if parameters else "")
    content = None if asked.body is None else json.dumps(asked.body, allow_nan=False).encode()
    typed = {} if content is None else {"content-type": "application/json"}
    headers = {"accept": "application/json", **typed, **asked.headers, **who.headers}
    most = tool.extra.get("constraints", {}).get("max_output_bytes", OUTPUT_BYTES)
    began = time.monotonic()
    try:
        answer = await send(asked.method, url, headers, content, seconds=seconds, most=most)
    except Unreachable as error:
        told = who.hide(str(error))
        raise StepFailed(f"tool {tool.tool_id}: the service cannot be reached: {told}") from None
    metrics: dict[str, object] = {"wall_ms": (time.monotonic() - began) * 1000}
    text = answer.content.decode(errors="replace")
    if not 200 <= answer.status < 300:
        raise StepFailed(
            f"tool {tool.tool_id}: the service answered HTTP {answer.status}: {who.hide(text)[:_SHOWN_CHARS]}",
            final=answer.status not in _BUSY,
            metrics=metrics,
        )
    return Result(_value(tool, text, answer.kind), metrics)


@dataclass(frozen=True)
class _Credentials:
    """What shows who asks."""

    headers: Mapping[str, str] = field(default_factory=dict)
    query: tuple[tuple[str, str], ...] = ()
    secret: str = ""

    def hide(self, text: str) -> str:
        return text.replace(self.secret, "…") if self.secret else text


def _credentials(auth: Mapping[str, Any]) -> _Credentials:
    kind = auth.get("type", "bearer" if auth else "none")
    if kind == "none":
        return _Credentials()
    variable = auth["variable"]
    secret = os.environ.get(variable, "").strip()
    if not secret:
        raise StepFailed(f"the variable {variable} is not set", final=True, hint=f"export {variable}=…")
    if kind == "api_key" and auth.get("in") == "query":
        return _Credentials(query=((auth.get("name", "api_key"), secret),), secret=secret)
    if kind == "api_key":
        return _Credentials({auth.get("name", "X-API-Key"): secret}, secret=secret)
    shown = secret if kind == "bearer" else base64.b64encode(secret.encode()).decode()
    return _Credentials({"authorization": f"{kind.capitalize()} {shown}"}, secret=secret)


def _value(tool: ToolDefinition, text: str, kind: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        if "json" in kind:
            raise StepFailed(
                f"tool {tool.tool_id}: the service says that it sends JSON, but sends {text[:_SHOWN_CHARS]!r}"
            ) from None
        return text
