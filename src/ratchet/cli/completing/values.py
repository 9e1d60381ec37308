"""Which values a parameter may have. Its metavar says what it is: `AGENT`, `FILE|WORKFLOW`, `[PROTOCOL]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from ratchet.cli.completing.installed import engines, tasks
from ratchet.cli.completing.names import QUERIES, names_in
from ratchet.cli.completing.place import Place, place_of
from ratchet.cli.session import Session

# A shell would take other characters for its own, and a name may come from anywhere.
_PLAIN = re.compile(r"[\w.@:/+-]+")
_MOST_HELP = 80

_FILES = {"FILE": "file", "PATH": "file", "DIR": "dir", "DIRECTORY": "dir", "WORKSPACE": "dir"}
# The same word means something of its own to these commands.
_APART: Mapping[tuple[str, str], str | None] = {
    ("research", "RUN"): "RESEARCH",
    ("research", "TASK"): "INSTALLED TASK",
    ("agent", "TOOL"): None,
}


class Value(click.ParamType[str]):
    """A value that is completed by what its metavar says."""

    name = "text"

    def __init__(
        self, path: str, metavar: str, *, number: bool, engines: Callable[[], Sequence[str]]
    ) -> None:
        self.group = path.partition(" ")[0]
        self.words = re.findall(r"[A-Za-z]+", metavar)
        self.number = number
        self.engines = engines

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        files = [_FILES[word] for word in self.words if word in _FILES]
        known = [] if files and "/" in incomplete else self._known(ctx, incomplete)
        # A shell completes either files or what it is given.
        return known or [CompletionItem(incomplete, type=kind) for kind in files[:1]]

    def _known(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        session = ctx.find_object(Session) or Session()
        place = place_of(session.flags)
        found = {name: about for word in self.words for name, about in self._named(word, place).items()}
        return [
            CompletionItem(name, help=_shown(about))
            for name, about in found.items()
            if name.startswith(incomplete)
            and _PLAIN.fullmatch(name)
            and (name.isdecimal() or not self.number)
        ]

    def _named(self, word: str, place: Place) -> Mapping[str, str]:
        match _APART.get((self.group, word), word):
            case "ENGINE":
                return engines(place, self.engines())
            case "INSTALLED TASK":
                return tasks()
            case "QUEUE":
                configured = dict.fromkeys(["default", *place.tables.get("queues", {})], "")
                return {**configured, **names_in(place, "QUEUE")}
            case "all":
                return {"all": "all of them"}
            case str(kind) if kind in QUERIES:
                return names_in(place, kind)
            case _:
                return {}


def _shown(about: str) -> str | None:
    text = " ".join("".join(each if each.isprintable() else " " for each in about).split())
    return text[:_MOST_HELP] or None
