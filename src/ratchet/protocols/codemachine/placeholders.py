"""Names in braces that stand for something else, in paths and in prompts.

A plain one stands for a text. One of `userDir` or `packageDir` stands for what is in a file, or in all files that fit a
pattern; where the steps are to write that file, for its path.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.protocols.codemachine.errors import Place
from ratchet.protocols.codemachine.fields import Fields
from ratchet.protocols.codemachine.files import FOLDER, Files
from ratchet.protocols.codemachine.paths import HOME
from ratchet.protocols.codemachine.values import Value, plain

LARGEST_FILE = 256 * 1024
LONGEST_PROMPT = 300_000
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_IN_TEXT = re.compile(
    rf"\{{\{{\s*(?P<optional2>!)?(?P<double>{_NAME})\s*\}}\}}|\$\{{(?P<dollar>{_NAME})\}}"
    rf"|\{{(?P<optional>!)?(?P<single>{_NAME})\}}"
)
_SEGMENT = re.compile(
    rf"\{{\{{\s*({_NAME})\s*\}}\}}|<({_NAME})>|\$\{{({_NAME})\}}|\$({_NAME})|\{{({_NAME})\}}"
)
# What steps write while they run: a copy made beforehand would be an old one.
_WRITTEN = tuple(f"{HOME}/{FOLDER}/{name}/" for name in ("artifacts", "outputs", "memory"))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A file or files, in the project or in the package."""

    path: str
    place: Place
    of_project: bool


@dataclass(frozen=True, slots=True)
class Placeholders:
    """`written` is what the configuration has, as it is."""

    texts: Mapping[str, str] = field(default_factory=dict)
    patterns: Mapping[str, Pattern] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)

    def in_path(self, path: str, place: Place) -> str:
        """A path with its placeholders filled in. Raises `WorkspaceInvalid` for one that nobody defined."""
        return "/".join(self._segment(part, place) for part in path.split("/"))

    def in_text(self, text: str, files: Files, place: Place, more: Mapping[str, str]) -> str:
        """A prompt with its placeholders filled in, once: what is filled in is not looked at again.

        Braces around any other name stay as they are. Raises `WorkspaceInvalid` when a file of the package is missing,
        or when it all comes to too much.
        """
        contents: dict[tuple[str, bool], str] = {}
        length = len(text)

        def content(name: str, optional: bool) -> str:
            if (name, optional) not in contents:
                pattern = self.patterns[name]
                contents[name, optional] = _content(name, pattern, files, place, optional=optional)
            return contents[name, optional]

        def meaning(found: re.Match[str]) -> str:
            nonlocal length
            name = found["double"] or found["dollar"] or found["single"]
            if name in self.patterns:
                filled = content(name, bool(found["optional"] or found["optional2"]))
            else:
                filled = self.texts.get(name, more.get(name, found[0]))
            length += len(filled)
            if length > LONGEST_PROMPT:
                raise place.error(f"with its placeholders it comes to more than {LONGEST_PROMPT} characters")
            return filled

        return _IN_TEXT.sub(meaning, text)

    def _segment(self, segment: str, place: Place) -> str:
        found = _SEGMENT.fullmatch(segment)
        if found is None:
            return segment
        name = next(group for group in found.groups() if group is not None)
        if name not in self.texts:
            raise place.error(
                f"the placeholder {segment} is not defined", hint="define it in placeholders.js"
            )
        return self.texts[name]


def read_placeholders(exported: Value) -> Placeholders:
    """Texts at the top, and files in `userDir` and `packageDir`."""
    top = Fields.of(exported, "placeholders")
    texts: dict[str, str] = {}
    patterns: dict[str, Pattern] = {}
    for name, value in top.entries.items():
        if not isinstance(value.data, Mapping):
            found = top.text(name)
            if found is not None:
                texts[name] = found
            continue
        group = Fields.of(value, name)
        for each in group.entries:
            path = group.text(each)
            if path is not None:
                patterns[each] = Pattern(path, value.data[each].place, of_project=name != "packageDir")
    return Placeholders(texts, patterns, plain(exported))


def _content(name: str, pattern: Pattern, files: Files, place: Place, *, optional: bool) -> str:
    wanted = _places(pattern, files)
    if pattern.of_project and any(each.startswith(_WRITTEN) for each in wanted):
        return _named(wanted)
    for each in wanted:
        found = files.matching(each)
        if found:
            return "\n\n".join(_texts(files, found, place))
    if pattern.of_project:
        return _named(wanted)
    if optional:
        return ""
    raise pattern.place.error(
        f"the placeholder {name} stands for {pattern.path}, which does not exist",
        hint=f"add the file, or write {{!{name}}} in {place.file} where it may be missing",
    )


def _texts(files: Files, paths: list[str], place: Place) -> Iterator[str]:
    length = 0
    for path in paths:
        text = files.text(path, limit=LARGEST_FILE, place=place).rstrip()
        length += len(text)
        if length > LONGEST_PROMPT:
            raise place.error(f"the files of a placeholder come to more than {LONGEST_PROMPT} characters")
        yield text


def _places(pattern: Pattern, files: Files) -> list[str]:
    """A path of the project starts at the project, one of the package at the configuration; else the other way."""
    tops = (HOME, files.base) if pattern.of_project else (files.base, HOME)
    return list(dict.fromkeys(posixpath.normpath(posixpath.join(top, pattern.path)) for top in tops))


def _named(places: list[str]) -> str:
    return f"`{places[0].removeprefix(f'{HOME}/')}` (read it in the repository, if it is there by then)"
