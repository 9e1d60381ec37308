"""What can be read by its address: every reading tool that is about one thing or one list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from ratchet.kernel import Misuse
from ratchet.server.mcp.endpoints import CURSORS
from ratchet.server.mcp.offered import Offered

SCHEME = "ratchet://"
_PLACE = re.compile(r"\{(\w+)(?::path)?\}")
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class Resource:
    """A reading tool under an address: the path of the API, and its other arguments as a query."""

    tool: Offered

    @property
    def template(self) -> str:
        """Its address as RFC 6570 has it."""
        more = [name for name in self.tool.arguments["properties"] if name not in self._places]
        return self._path + (f"{{?{','.join(more)}}}" if more else "")

    @property
    def uri(self) -> str | None:
        """The address, if there is only one."""
        return None if self._places else self._path

    @property
    def media_type(self) -> str:
        return "text/plain" if self.tool.is_text else "application/json"

    @property
    def _path(self) -> str:
        return SCHEME + _PLACE.sub(r"{\1}", self.tool.declared.path).removeprefix("/")

    @cached_property
    def _places(self) -> list[str]:
        return _PLACE.findall(self.tool.declared.path)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(_PLACE.sub(r"(?P<\1>[^/]+)", self.tool.declared.path.removeprefix("/")))

    def arguments(self, path: str) -> dict[str, str] | None:
        found = self._pattern.fullmatch(path)
        return None if found is None else {name: unquote(text) for name, text in found.groupdict().items()}

    def following(self, uri: str, told: Mapping[str, Any]) -> str | None:
        """Where the next page, or the next part of a text, is read."""
        for cursor, value in (
            ("offset", told.get("next_offset")),
            *((each, told.get("next")) for each in CURSORS),
        ):
            if value is not None and cursor in self.tool.arguments["properties"]:
                path, _, query = uri.partition("?")
                return f"{path}?{urlencode({**dict(parse_qsl(query)), cursor: value})}"
        return None

    @property
    def rank(self) -> int:
        """Those that name more of their path come first: `research/tasks` is no run."""
        return len(self._places)


def resource_of(tool: Offered) -> Resource:
    return Resource(tool)


def find_resource(resources: Iterable[Resource], uri: str) -> tuple[Resource, dict[str, Any]]:
    """The resource at an address, and the arguments in it. Raises `Misuse`."""
    path, _, query = uri.removeprefix(SCHEME).partition("?")
    if uri.startswith(SCHEME):
        for resource in sorted(resources, key=lambda each: each.rank):
            found = resource.arguments(path)
            if found is not None:
                given = {**dict(parse_qsl(query, keep_blank_values=True)), **found}
                return resource, {name: _read(resource, name, text) for name, text in given.items()}
    raise Misuse(
        f"there is no resource {uri[:200]!r}",
        hint="list the resources and their templates to see what there is",
    )


def _read(resource: Resource, name: str, text: str) -> Any:
    """The value that the tool takes; text that is none of it is left for the tool to refuse."""
    kind = resource.tool.arguments["properties"].get(name, {}).get("type")
    if kind == "boolean":
        return _WORDS.get(text, text)
    if kind == "integer" and text.isascii() and text.isdecimal():
        return int(text) if len(text) < 20 else text
    return text
