"""Objects of a configuration, read field by field, with their conditions and placeholders.

What is of the wrong kind is an error with its line.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.protocols.codemachine.files import FOLDER, HOME, Files, SourcePlace
from ratchet.protocols.codemachine.syntax import ScriptCall, ScriptValue, plain


@dataclass(frozen=True, slots=True)
class Fields:
    """An object. `called` says to people what it is: `agent 'plan'`. A field that is null is not there."""

    entries: Mapping[str, ScriptValue]
    place: SourcePlace
    called: str

    @classmethod
    def of(cls, value: ScriptValue, called: str) -> Fields:
        """Raises `WorkspaceInvalid` for anything but an object."""
        if not isinstance(value.data, Mapping):
            raise value.place.error(f"{called} must be an object, not {kind(value)}")
        return cls(value.data, value.place, called)

    def named(self, called: str) -> Fields:
        return Fields(self.entries, self.place, called)

    def get(self, *names: str) -> ScriptValue | None:
        """The first of several names that is there."""
        found = (self.entries[name] for name in names if name in self.entries)
        return next((value for value in found if value.data is not None), None)

    def text(self, *names: str) -> str | None:
        value = self.get(*names)
        return None if value is None else self._text(names[0], value)

    def texts(self, *names: str) -> tuple[str, ...]:
        """One text or an array of them."""
        return tuple(self._text(names[0], each) for each in self.values(*names))

    def values(self, *names: str) -> tuple[ScriptValue, ...]:
        """One value or an array of them."""
        value = self.get(*names)
        if value is None:
            return ()
        return value.data if isinstance(value.data, tuple) else (value,)

    def whole(self, *names: str) -> int | None:
        """A whole number that is not negative."""
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value.data, bool) or not isinstance(value.data, int) or value.data < 0:
            raise value.place.error(f"{names[0]} of {self.called} must be a whole number, not {kind(value)}")
        return value.data

    def flag(self, *names: str) -> bool:
        value = self.get(*names)
        if value is not None and not isinstance(value.data, bool):
            raise value.place.error(f"{names[0]} of {self.called} must be true or false, not {kind(value)}")
        return value is not None and value.data is True

    def fields(self, *names: str) -> Fields | None:
        value = self.get(*names)
        return None if value is None else Fields.of(value, f"{names[0]} of {self.called}")

    def plain(self, *names: str) -> Any:
        value = self.get(*names)
        return None if value is None else plain(value)

    def _text(self, name: str, value: ScriptValue) -> str:
        if not isinstance(value.data, str) or not value.data.strip():
            raise value.place.error(f"{name} of {self.called} must be a text, not {kind(value)}")
        return value.data


def objects(value: ScriptValue, called: str) -> Iterator[Fields]:
    """The objects of an array. A file that exports one array by name may have it instead."""
    found = value
    if isinstance(value.data, Mapping) and len(value.data) == 1:
        [found] = value.data.values()
    if not isinstance(found.data, tuple):
        raise found.place.error(f"{called}s must be an array, not {kind(found)}")
    for number, each in enumerate(found.data, start=1):
        yield Fields.of(each, f"{called} {number}")


def kind(value: ScriptValue) -> str:
    """What a value is, in a word or two."""
    match value.data:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return f"the number {value.data}"
        case str():
            return f"the text {value.data[:40]!r}" if value.data.strip() else "an empty text"
        case tuple():
            return "an array"
        case Mapping():
            return "an object"
        case ScriptCall(function):
            return f"{function}(…)"
        case _:
            return "a function"


@dataclass(frozen=True, slots=True)
class TrackChoices:
    """What was chosen: a track or none, and the conditions that hold."""

    track: str | None = None
    conditions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Only:
    """When something is part of the work: on one of these tracks, if all and any of these conditions hold."""

    tracks: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    any_conditions: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: Fields) -> Only:
        return cls(fields.texts("tracks"), fields.texts("conditions"), fields.texts("conditionsAny"))

    def holds(self, choices: TrackChoices, place: SourcePlace) -> bool:
        """Raises `WorkspaceInvalid` when a track must be chosen and none was."""
        if self.tracks and choices.track is None:
            raise place.error(
                f"this depends on the track ({', '.join(self.tracks)}), and none is chosen",
                hint="set selectedTrack in template.json, or give the track when importing",
            )
        return (
            (not self.tracks or choices.track in self.tracks)
            and choices.conditions.issuperset(self.conditions)
            and (not self.any_conditions or not choices.conditions.isdisjoint(self.any_conditions))
        )


ALWAYS = Only()


def all_hold(several: Iterable[Only], choices: TrackChoices, place: SourcePlace) -> bool:
    return all(each.holds(choices, place) for each in several)


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
    place: SourcePlace
    of_project: bool


@dataclass(frozen=True, slots=True)
class Placeholders:
    """`written` is what the configuration has, as it is."""

    texts: Mapping[str, str] = field(default_factory=dict)
    patterns: Mapping[str, Pattern] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)

    def in_path(self, path: str, place: SourcePlace) -> str:
        """A path with its placeholders filled in. Raises `WorkspaceInvalid` for one that is not defined."""
        return "/".join(self._segment(part, place) for part in path.split("/"))

    def in_text(self, text: str, files: Files, place: SourcePlace, more: Mapping[str, str]) -> str:
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

    def _segment(self, segment: str, place: SourcePlace) -> str:
        found = _SEGMENT.fullmatch(segment)
        if found is None:
            return segment
        name = next(group for group in found.groups() if group is not None)
        if name not in self.texts:
            raise place.error(
                f"the placeholder {segment} is not defined", hint="define it in placeholders.js"
            )
        return self.texts[name]


def read_placeholders(exported: ScriptValue) -> Placeholders:
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


def _content(name: str, pattern: Pattern, files: Files, place: SourcePlace, *, optional: bool) -> str:
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


def _texts(files: Files, paths: list[str], place: SourcePlace) -> Iterator[str]:
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
