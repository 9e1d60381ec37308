"""How a tool shows a web service who it is. A definition names variables, never secrets."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.config.workflow_settings import Tools
from ratchet.engines.secrets import Secrets
from ratchet.tools.call import ToolFailed
from ratchet.tools.variables import variable

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


@dataclass(frozen=True, slots=True)
class Credentials:
    headers: Mapping[str, str] = field(default_factory=dict)
    query: tuple[tuple[str, str], ...] = ()
    secrets: Secrets = field(default_factory=lambda: Secrets(()))


def credentials(auth: Mapping[str, Any], settings: Tools) -> Credentials:
    """What is to be sent besides the question. Raises `ToolFailed`.

    `type` is `bearer`, `basic` (a variable with `user:password` in it) or `api_key`, which goes into the header or,
    with `in: query`, into the parameter that is called `name`.
    """
    kind = str(auth.get("type") or ("bearer" if auth else "none")).lower().replace("-", "_")
    if kind == "none":
        return Credentials()
    secret = variable(_variable_of(auth), settings)
    hidden = Secrets([secret, base64.b64encode(secret.encode()).decode()])
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
