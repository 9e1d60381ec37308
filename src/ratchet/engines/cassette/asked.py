"""A request as a cassette keeps it: what decides the answer, and nothing that is secret or true on one machine only."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from ratchet.config.masking import mask_text
from ratchet.engines.cassette.changes import Entry, digest
from ratchet.engines.cassette.placeholder import Placeholder
from ratchet.engines.session import McpServer, Request
from ratchet.observe.redaction import redact


def describe(request: Request, files: Mapping[str, Entry] | None, place: Placeholder) -> dict[str, Any]:
    """The request as JSON. `files` is what lies in its workspace.

    Limits and the deadline are left out: they say how much a session may cost, and a replay checks them by itself. So
    are `environment` and `readable`, which say where things lie on one machine.
    """
    described = {
        "prompt": mask_text(request.prompt),
        "system": None if request.system is None else mask_text(request.system),
        "model": request.model,
        "output_schema": request.output_schema,
        "mcp_servers": [_server(each) for each in request.mcp_servers],
        "tools": [
            {"name": each.name, "description": each.description, "input_schema": each.input_schema}
            for each in request.tools
        ],
        "guarded": request.guard is not None,
        "resume": request.resume,
        "data": redact(request.data),
        "workspace": None if files is None else {"files": len(files), "sha256": digest(files)},
    }
    plain: dict[str, Any] = json.loads(json.dumps(place.hide(described), default=str))
    return plain


def difference(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """A unified diff from what was recorded to what is asked; nothing if they are the same."""
    lines = difflib.unified_diff(_lines(recorded), _lines(asked), "recorded", "asked", lineterm="")
    return "\n".join(lines)


def _server(server: McpServer) -> dict[str, Any]:
    """Its address and its program differ from machine to machine, and both may hold a key."""
    over = "url" if server.url else "pipes"
    return {"name": server.name, "over": over, "environment": sorted(server.environment)}


def _lines(described: Mapping[str, Any]) -> list[str]:
    return json.dumps(_split(described), indent=2, sort_keys=True, ensure_ascii=False).splitlines()


def _split(value: Any) -> Any:
    """Long texts line by line, so that a diff shows the line that is different."""
    match value:
        case str() if "\n" in value:
            return value.splitlines(keepends=True)
        case Mapping():
            return {key: _split(item) for key, item in value.items()}
        case list():
            return [_split(item) for item in value]
        case _:
            return value
