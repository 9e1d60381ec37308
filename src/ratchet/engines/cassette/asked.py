"""A request as a cassette keeps it: what decides the answer, and nothing that is secret or true on one machine only."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.config.database_url import mask_text
from ratchet.engines.cassette.changes import Entry, digest
from ratchet.engines.cassette.placeholder import Placeholder
from ratchet.engines.session import McpServer, Request
from ratchet.observe.redaction import redact

_HOLDS, _LACKS = "prompt_holds", "prompt_lacks"


def describe(request: Request, files: Mapping[str, Entry] | None, place: Placeholder) -> dict[str, Any]:
    """The request as JSON. `files` is what lies in its workspace.

    Limits and the deadline are left out: they say how much a session may cost, and a replay checks them by itself. So
    are `environment`, `readable`, `places` and `hidden`, which say where things lie on one machine.
    """
    if files is not None:
        files = {path: entry for path, entry in files.items() if not _incidental(path, request.incidental)}
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
    # Only where they are asked for, so that older recordings still answer.
    for name in ("temperature", "output_tokens"):
        if (asked := getattr(request, name)) is not None:
            described[name] = asked
    plain: dict[str, Any] = json.loads(json.dumps(place.hide(described), default=str))
    return plain


def is_excerpt(recorded: Mapping[str, Any]) -> bool:
    """Whether a session was written by hand: it then names what the prompt must hold, in place of a whole request."""
    return isinstance(recorded, Mapping) and isinstance(recorded.get(_HOLDS), list)


def answers(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether a recorded session is one for what is asked now."""
    return _comparable(asked, recorded) == recorded


def difference(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """A unified diff from what was recorded to what is asked; nothing if they are the same."""
    compared = _comparable(asked, recorded)
    lines = difflib.unified_diff(_lines(recorded), _lines(compared), "recorded", "asked", lineterm="")
    return "\n".join(lines)


def _comparable(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is asked, in the form of what was recorded: of an excerpt, the part of it that is true now."""
    if not is_excerpt(recorded):
        return asked
    return {
        name: [text for text in recorded[name] if (str(text) in asked["prompt"]) is held]
        for name, held in ((_HOLDS, True), (_LACKS, False))
        if isinstance(recorded.get(name), list)
    }


def _incidental(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


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
