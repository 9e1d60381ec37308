"""Reading the record of a session: a page of it at a time, with what each turn cost.

A transcript may be long and its lines too, so a page ends after a number of entries or of characters, whichever comes
first. Lines before the page are looked at, not parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from ratchet.engines.session import EventKind
from ratchet.kernel import Usage

_MOST_CHARACTERS = 400_000
_USAGE_MARK = f'"kind": "{EventKind.USAGE}"'.encode()


@dataclass(frozen=True, slots=True)
class Entry:
    """What was said at once, from line `number` to line `last`. `ms` is when, counted from the session's beginning.

    `turn` is what was used since the session last told its usage, where this tells it.
    """

    number: int
    last: int
    ms: int
    kind: str
    text: str
    data: Any
    turn: Usage | None = None


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """`next` is the line to go on after. `matches` says how many entries of the whole fit what was sought."""

    entries: list[Entry]
    next: int | None
    lines: int
    matches: int | None = None


def read_transcript(
    lines: Iterable[bytes], *, after: int = 0, limit: int = 100, search: str | None = None
) -> TranscriptPage:
    """The entries behind line `after`; with `search` only those that contain it, in capitals or not.

    A line that is no entry is shown as a note: what was recorded is shown as it is.
    """
    reading = _Reading(after, limit, search)
    for number, line in enumerate(lines, start=1):
        reading.read(number, line)
    return reading.page()


class _Reading:
    """One pass over a transcript."""

    def __init__(self, after: int, limit: int, search: str | None) -> None:
        self._after, self._limit = after, limit
        self._wanted = None if search is None else search.casefold()
        self._entries: list[Entry] = []
        self._open: Entry | None = None
        self._told = Usage()
        self._lines = self._size = self._matches = 0
        self._full = False

    def read(self, number: int, line: bytes) -> None:
        self._lines = number
        tells = _USAGE_MARK in line
        if not tells and self._wanted is None and (number <= self._after or self._full):
            return
        entry = _entry(number, line)
        if tells:
            before, self._told = self._told, _usage(entry.data).largest(self._told)
            entry = replace(entry, turn=self._told.less(before))
        if self._open is not None and _continues(self._open, entry):
            text = self._open.text + entry.text
            self._open = replace(self._open, last=number, text=text, data=entry.data)
            return
        self._close()
        self._open = entry

    def page(self) -> TranscriptPage:
        self._close()
        return TranscriptPage(
            self._entries,
            self._entries[-1].last if self._full else None,
            self._lines,
            None if self._wanted is None else self._matches,
        )

    def _close(self) -> None:
        """Take the entry that has come to its end, if it belongs to the page."""
        entry, self._open = self._open, None
        if entry is None or not (self._wanted is None or _has(entry, self._wanted)):
            return
        self._matches += 1
        if entry.number <= self._after or self._full:
            return
        size = self._size + sum(map(len, _texts(entry)))
        self._full = bool(self._entries) and (len(self._entries) == self._limit or size > _MOST_CHARACTERS)
        if not self._full:
            self._entries.append(entry)
            self._size = size


def _continues(last: Entry, entry: Entry) -> bool:
    """Whether a text that comes in pieces goes on; a piece that is not the last one has `more`."""
    more = isinstance(last.data, dict) and last.data.get("more") is True
    return more and last.kind == entry.kind


def _entry(number: int, line: bytes) -> Entry:
    try:
        found = json.loads(line)
        kind, text = str(found["kind"]), str(found.get("text") or "")
        return Entry(number, number, int(found.get("ms") or 0), kind, text, found.get("data") or None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Entry(number, number, 0, str(EventKind.NOTE), line.decode("utf-8", "replace").strip(), None)


def _has(entry: Entry, wanted: str) -> bool:
    return any(wanted in part.casefold() for part in _texts(entry))


def _texts(entry: Entry) -> Iterator[str]:
    yield entry.kind
    yield entry.text
    if entry.data is not None:
        yield json.dumps(entry.data, ensure_ascii=False)


def _usage(data: Any) -> Usage:
    """What a line says was used so far; nothing where it says so in a way that cannot be meant."""
    names = [each.name for each in fields(Usage)]
    said = {name: data[name] for name in names if name in data} if isinstance(data, dict) else {}
    try:
        return Usage(**said)
    except ValueError:
        return Usage()
