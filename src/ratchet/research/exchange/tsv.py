"""The dialect of results.tsv: cells between tabs, one with tabs, quotes or line ends in it between quotes.

Rows are read one by one and without trust. A quote that is never closed would swallow all rows after it, so a row that
does not come out right is taken up to the next line that begins like a row, and marked as broken.
"""

from __future__ import annotations

import math
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ratchet.kernel import Misuse, exp_id
from ratchet.research.tasks.folder import open_plain

_TAG = re.compile(r"</(?:hypothesis|parameter|invoke)>|<parameter\s+name=", re.IGNORECASE)
_NOTES = re.compile(r'<parameter\s+name="notes">(.*?)(?:</parameter>|</invoke>|$)', re.IGNORECASE | re.DOTALL)


class Cleaned(NamedTuple):
    hypothesis: str
    notes: str
    """The notes that had leaked into the hypothesis, if any."""


def clean(text: str) -> Cleaned:
    """A hypothesis without what leaked into it. One that is nothing but markup stays as it is."""
    tag = _TAG.search(text)
    if tag is None or not text[: tag.start()].strip():
        return Cleaned(text, "")
    notes = _NOTES.search(text, tag.start())
    return Cleaned(text[: tag.start()].rstrip(), notes[1].strip() if notes else "")


RESULTS = "results.tsv"
TREE = "tree.tsv"
BEST = "best.json"
LEADERBOARD = "LEADERBOARD.md"
KNOWLEDGE = "KNOWLEDGE.md"
CALIBRATION = "calibration.log"
SNAPSHOTS = "snapshots"

_BLACKBOARD = "blackboard"


def find_blackboard(directory: Path) -> Path:
    """The directory with results.tsv in it: the one given, or the blackboard below a state root."""
    for place in (directory, directory / _BLACKBOARD):
        if place.is_dir() and os.path.lexists(place / RESULTS):
            if place != directory and place.is_symlink():
                raise Misuse(f"{place} is a symbolic link", hint="name the directory that it leads to")
            return place
    if not directory.exists():
        raise Misuse(f"{directory} does not exist", hint="name a state directory")
    raise Misuse(
        f"there is no {RESULTS} in {directory} or in its {_BLACKBOARD}",
        hint=f"name the directory that holds {RESULTS}, or the state root above its {_BLACKBOARD}",
    )


def open_file(path: Path) -> BinaryIO:
    """A regular file, opened for reading. Raises `FileNotFoundError`, or `Misuse` for anything else than a file."""
    try:
        return open_plain(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = "is a symbolic link" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise Misuse(f"{path} {what}", hint="put a readable regular file there") from error


def read_bytes(path: Path, limit: int) -> bytes:
    """The whole of a small file. Raises as `open_file`, and `Misuse` for more than `limit` bytes."""
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Misuse(f"{path} has more than {limit} bytes", hint="that is no file of a state directory")
    return content


# A row for each number up to the highest would have to fit into the ledger.
HIGHEST = 10_000_000
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_ID = re.compile(r"(?:exp[_ -]?)?0*(\d{1,9})", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def read_number(text: str) -> float | None:
    """A finite decimal number, or nothing."""
    if len(text) > 400 or _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def read_id(text: str) -> int | None:
    """The number of a trial, however it is written: 75, 075 or exp_075. Nothing for any other text."""
    found = _ID.fullmatch(text.strip())
    number = HIGHEST if found is None else int(found[1])
    return number if number < HIGHEST else None


def read_time(text: str) -> int | None:
    """Milliseconds since 1970, or nothing."""
    if _TIME.fullmatch(text) is None:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


def score_text(score: float | None) -> str:
    return "" if score is None else f"{score:.6f}"


def id_text(number: int | None) -> str:
    return "" if number is None else exp_id(number)


def time_text(at: int | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Of one row. A hypothesis is a sentence or two; nothing that people wrote comes near.
MOST_BYTES = 8 * 1024 * 1024
_BEGINS_ROW = re.compile(r"(?:exp_)?\d+\t")
_INSIDE_QUOTES = re.compile(r'[^"]*(?:""[^"]*)*')
_NEEDS_QUOTES = re.compile(r'[\t"\r\n]')


@dataclass(frozen=True, slots=True)
class TsvRecord:
    """A row as it lies in the file, from line `line` on. `problem` says why there are no cells to be had.

    `broken` says that the cells are a guess: their number is wrong, or the quotes do not match.
    """

    line: int
    cells: tuple[str, ...] = ()
    raw: str = ""
    broken: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    problem: str | None = None


class RecordLines:
    """The lines of a file in UTF-8, none of them longer than a row may be. A line can be given back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 0
        self._again: deque[_Line] = deque()
        self._ending = ""

    def header(self) -> str | None:
        """The first line. If it ends as lines do on Windows, so do all the others."""
        first = self.next()
        if first is None:
            return None
        if first.text.endswith("\r"):
            self._ending = "\r"
        return first.text.removesuffix("\r").removeprefix("\ufeff")

    def next(self) -> _Line | None:
        if self._again:
            return self._again.popleft()
        raw = self._file.readline(MOST_BYTES + 1)
        if not raw:
            return None
        self._number += 1
        if len(raw) > MOST_BYTES:
            while raw and not raw.endswith(b"\n"):
                raw = self._file.readline(MOST_BYTES + 1)
            return _Line(self._number, "", f"the line has more than {MOST_BYTES} bytes")
        if b"\0" in raw:
            return _Line(self._number, "", "there are NUL bytes in it")
        try:
            text = raw.decode().removesuffix("\n").removesuffix(self._ending)
        except UnicodeDecodeError as error:
            return _Line(self._number, "", f"byte {error.start + 1} of the line is not UTF-8")
        return _Line(self._number, text)

    def give_back(self, lines: Iterable[_Line]) -> None:
        self._again.extendleft(reversed(list(lines)))


def records(lines: RecordLines, width: int) -> Iterator[TsvRecord]:
    """The rows after the header, which has `width` columns."""
    while (first := lines.next()) is not None:
        if first.problem is not None:
            yield TsvRecord(first.number, problem=first.problem)
        elif '"' not in first.text and first.text.count("\t") == width - 1:
            yield TsvRecord(first.number, tuple(first.text.split("\t")), first.text)
        elif first.text:
            yield _quoted(lines, first, width) or _broken(lines, first)


def _quoted(lines: RecordLines, first: _Line, width: int) -> TsvRecord | None:
    """A row with quotes in it, over as many lines as these span; nothing when it does not come out right."""
    parser, taken, size = _Parser(), [first], len(first.text)
    closed = parser.take(first.text)
    while not closed and size <= MOST_BYTES and (more := lines.next()) is not None:
        taken.append(more)
        size += len(more.text)
        if more.problem is not None:
            break
        closed = parser.take(more.text)
    if closed and parser.tidy and len(parser.cells) == width:
        return TsvRecord(first.number, tuple(parser.cells), "\n".join(line.text for line in taken))
    lines.give_back(taken[1:])
    return None


def _broken(lines: RecordLines, first: _Line) -> TsvRecord:
    """A row that is not right, with the lines after it that belong to no other."""
    parser, taken, size = _Parser(), [first], len(first.text)
    parser.take(first.text)
    while (more := lines.next()) is not None:
        size += len(more.text)
        if more.problem is not None or size > MOST_BYTES or _BEGINS_ROW.match(more.text):
            lines.give_back([more])
            break
        taken.append(more)
        parser.go_on(more.text)
    raw = "\n".join(line.text for line in taken).rstrip("\n")
    return TsvRecord(first.number, tuple(parser.finish()), raw, broken=True)


class _Parser:
    """Takes a row line by line. `tidy` says that nothing stood between a closing quote and the next tab."""

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.tidy = True
        self._open: list[str] | None = None
        self._after: list[str] = []

    def take(self, line: str) -> bool:
        """Whether the row is complete with this line."""
        at = 0
        if self._open is not None:
            self._open.append("\n")
            at = self._inside(line, 0)
        while at <= len(line) and self._open is None:
            if line.startswith('"', at):
                self._open = []
                at = self._inside(line, at + 1)
            else:
                end = _end(line, at)
                self.cells.append(line[at:end])
                at = end + 1
        return self._open is None

    def go_on(self, line: str) -> None:
        """A line more, which belongs to the last cell even when its quotes are closed."""
        if self._open is None:
            self._after += ("\n", line)
        else:
            self.take(line)

    def finish(self) -> list[str]:
        """The cells, with what stands after a quote that was never closed."""
        last = "".join(self._open) if self._open is not None else self.cells.pop()
        return [*self.cells, (last + "".join(self._after)).rstrip("\n")]

    def _inside(self, line: str, at: int) -> int:
        """Continue inside quotes; where the next cell begins, if the quotes are closed on this line."""
        assert self._open is not None
        inside = _INSIDE_QUOTES.match(line, at)
        assert inside is not None
        self._open.append(inside[0].replace('""', '"'))
        if inside.end() == len(line):
            return len(line)
        after = inside.end() + 1
        end = _end(line, after)
        self.tidy = self.tidy and end == after
        self._open.append(line[after:end])
        self.cells.append("".join(self._open))
        self._open = None
        return end + 1


def _end(line: str, at: int) -> int:
    tab = line.find("\t", at)
    return len(line) if tab < 0 else tab


def written(cells: Iterable[str]) -> str:
    """A row as a line of the file, its end included."""
    return "\t".join(_cell(cell) for cell in cells) + "\n"


def _cell(text: str) -> str:
    if _NEEDS_QUOTES.search(text) is None:
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def flat(text: str) -> str:
    """Text for a place that knows no quotes: tabs and line ends become spaces."""
    return text.replace("\t", " ").replace("\r", " ").replace("\n", " ")
