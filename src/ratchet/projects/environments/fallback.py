"""What to try where one command asks for too much: extras that exclude each other, a lock that is out of date."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

Argv = tuple[str, ...]
_PIP = ("python3", "-m", "pip", "install")
_WITH_VALUE = ("-r", "--requirement", "-e", "--editable", "--group", "--extra", "-G", "--with")


@dataclass(frozen=True, slots=True)
class Weaker:
    """`needed` must work; `wished` may fail."""

    needed: tuple[Argv, ...]
    wished: tuple[Argv, ...] = ()


def weaker(argv: Sequence[str]) -> Weaker | None:
    """A form of the command that asks for less; nothing if there is none."""
    match tuple(argv):
        case ("python3", "-m", "pip", "install", *words):
            return _pip(words)
        case ("uv", "sync", *words):
            groups = _values(words, "--group")
            less = _without(words, "--all-extras", "--all-groups", "--group", "--extra")
            wished = tuple(("uv", "sync", *less, "--group", name) for name in groups)
            return Weaker((("uv", "sync", *less),), wished) if less != tuple(words) else None
        case ("poetry" | "pdm" as program, "install", *words):
            less = _without(words, "--all-extras", "-G", "--with")
            # Its own resolver may not get along with the index that pip is configured for.
            plainer = (program, "install", *less) if less != tuple(words) else (*_PIP, "-e", ".")
            return Weaker((plainer,))
        case ("npm", "ci", *_):
            return Weaker((("npm", "install"),))
        case ("npm", "install"):
            return Weaker((("npm", "install", "--legacy-peer-deps"),))
    return None


def _pip(words: Sequence[str]) -> Weaker | None:
    """The project first, then each file, group and package by itself."""
    needed: list[Argv] = []
    wished: list[Argv] = []
    options: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-e", "--editable") and rest:
            where = rest.pop(0)
            plain = where.partition("[")[0]
            needed.append(("-e", plain))
            extras = where.removeprefix(plain).strip("[]")
            wished += [("-e", f"{plain}[{each}]") for each in extras.split(",") if each]
        elif word in _WITH_VALUE and rest:
            wished.append((word, rest.pop(0)))
        elif word.startswith("-"):
            options.append(word)
        else:
            wished.append((word,))
    if len(needed) + len(wished) < 2:
        return None
    start = (*_PIP, *options)
    return Weaker(tuple((*start, *each) for each in needed), tuple((*start, *each) for each in wished))


def _values(words: Sequence[str], option: str) -> list[str]:
    return [then for word, then in itertools.pairwise(words) if word == option]


def _without(words: Sequence[str], *options: str) -> Argv:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in options:
            skip = word in _WITH_VALUE
        else:
            kept.append(word)
    return tuple(kept)
