"""A request as a cassette keeps it: what decides the answer, and nothing that is secret or true on one machine only."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratchet.config.database_url import mask_text
from ratchet.engines.cassette import FileState, digest
from ratchet.engines.engine import McpServer, Request
from ratchet.observe.logs import redact

_OPEN = "⟨"
_ESCAPED = "⟨⟨"


class Placeholder:
    """Writes `⟨workspace⟩` for the path of a workspace, in any text, and back.

    A path is looked for as it is and as it is written inside of JSON, and so is the path behind its symlinks.
    """

    def __init__(self, workspace: Path | None) -> None:
        self._paths = {} if workspace is None else _spellings(workspace)
        names = {path: name for name, path in reversed(self._paths.items())}
        found = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._names = names
        self._hidden = re.compile(rf"{_OPEN}|(?:{found})(?![\w-])" if names else _OPEN)
        self._shown = re.compile(rf"{_ESCAPED}|{_OPEN}(workspace[a-z:]*)⟩")

    def hide(self, value: Any) -> Any:
        """`value`, a JSON value, without the path in any of its texts."""
        return _mapped(value, self._hide)

    def show(self, value: Any) -> Any:
        """What was hidden, with the path of this workspace in the place of the other."""
        return _mapped(value, self._show)

    def _hide(self, text: str) -> str:
        return self._hidden.sub(
            lambda found: f"⟨{self._names[found[0]]}⟩" if found[0] != _OPEN else _ESCAPED, text
        )

    def _show(self, text: str) -> str:
        return self._shown.sub(
            lambda found: _OPEN if found[0] == _ESCAPED else self._paths.get(found[1], found[0]), text
        )


def _spellings(workspace: Path) -> dict[str, str]:
    """Name of a placeholder to what it stands for."""
    plain, real = str(workspace.absolute()), str(workspace.resolve())
    return {
        "workspace": plain,
        "workspace:real": real,
        "workspace:json": json.dumps(plain)[1:-1],
        "workspace:real:json": json.dumps(real)[1:-1],
    }


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {change(str(key)): _mapped(item, change) for key, item in value.items()}
        case list() | tuple():
            return [_mapped(item, change) for item in value]
        case None | bool() | int() | float():
            return value
        case _:
            return change(str(value))


_HOLDS, _LACKS = "prompt_holds", "prompt_lacks"


def describe(request: Request, files: Mapping[str, FileState] | None, place: Placeholder) -> dict[str, Any]:
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
