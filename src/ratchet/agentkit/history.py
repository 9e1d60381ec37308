"""Every state that there was, in a file of lines that only grows.

A line is written before the state's file is replaced and its newline after that. So a line without a newline tells
how far a writer came before it died: it is finished if the state is the one it speaks of, and cut off otherwise.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ratchet.agentkit.errors import HistoryDamaged, NoSuchChange
from ratchet.agentkit.files import opened, sync_directory
from ratchet.agentkit.values import MOST_BYTES, Step, canonical, follow


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the state: when it was made, and by whom."""

    number: int
    at: datetime
    by: str | None
    recovered: bool = False
    """The file was found changed: by hand, or by somebody who did not use the kit."""
    restored: int | None = None
    """The number of the earlier state that was made the current one again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A change with the state that it led to: the whole of it, or what is different from the entry before."""

    change: Change
    digest: str
    state: dict[str, Any] | None = None
    since: int = 0
    """The last entry that holds a whole state, where this one does not."""
    weight: int = 0
    """How many bytes of differences there are since then."""
    steps: list[Step] | None = None

    def line(self) -> bytes:
        """As it stands in the file, without the newline. The number comes first: a search reads no further."""
        change = self.change
        said: dict[str, Any] = {"number": change.number, "at": change.at.isoformat(), "by": change.by}
        if change.recovered:
            said["recovered"] = True
        if change.restored is not None:
            said["restored"] = change.restored
        said["digest"] = self.digest
        if self.state is not None:
            said["state"] = self.state
        else:
            said |= {"since": self.since, "weight": self.weight, "steps": self.steps}
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(canonical: bytes) -> str:
    return hashlib.sha256(canonical).hexdigest()


def read_entry(line: bytes) -> HistoryEntry | None:
    """The entry that a line is; `None` if it is none."""
    try:
        said = json.loads(line)
        return HistoryEntry(
            change=Change(
                number=_whole(said["number"]),
                at=datetime.fromisoformat(said["at"]).astimezone(UTC),
                by=said["by"] if said["by"] is None else _typed(said["by"], str),
                recovered=said.get("recovered", False) is True,
                restored=_whole(said["restored"]) if "restored" in said else None,
            ),
            digest=_typed(said["digest"], str),
            state=_typed(said["state"], dict) if "state" in said else None,
            since=_whole(said.get("since", 0)),
            weight=_whole(said.get("weight", 0)),
            steps=None if "state" in said else _typed(said["steps"], list),
        )
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(value)
    return value


def _typed(value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


_CHUNK = 64 * 1024


class HistoryLines:
    """The whole lines of an open file. What comes behind the last newline is no line yet."""

    def __init__(self, descriptor: int, *, longest: int) -> None:
        self._descriptor = descriptor
        self._longest = longest
        self.size = os.fstat(descriptor).st_size
        self.end = self.start_of(self.size)
        """Behind the last whole line."""

    def start_of(self, offset: int) -> int:
        """Where the line begins in which `offset` lies; behind a newline, that is `offset` itself."""
        at = offset
        while at > 0:
            below = max(0, at - _CHUNK)
            newline = os.pread(self._descriptor, at - below, below).rfind(b"\n")
            if newline >= 0:
                return below + newline + 1
            at = below
            self._check_length(offset - at)
        return 0

    def line(self, start: int) -> bytes:
        """The line that begins at `start`, without its newline."""
        gathered = bytearray()
        while True:
            chunk = os.pread(self._descriptor, _CHUNK, start + len(gathered))
            newline = chunk.find(b"\n")
            gathered += chunk if newline < 0 else chunk[:newline]
            if newline >= 0 or not chunk:
                return bytes(gathered)
            self._check_length(len(gathered))

    def head(self, start: int, size: int) -> bytes:
        """The first bytes of the line that begins at `start`, or of the lines behind it too."""
        return os.pread(self._descriptor, size, start)

    def tail(self) -> bytes:
        """What lies behind the last whole line."""
        self._check_length(self.size - self.end)
        return os.pread(self._descriptor, self.size - self.end, self.end)

    def backwards(self, end: int) -> Iterator[tuple[int, bytes]]:
        """Each line below `end` and where it begins, the last one first."""
        while end > 0:
            start = self.start_of(end - 1)
            yield start, self.line(start)
            end = start

    def forwards(self, start: int) -> Iterator[bytes]:
        """Each line from `start` on."""
        while start < self.end:
            line = self.line(start)
            yield line
            start += len(line) + 1

    def _check_length(self, length: int) -> None:
        if length > self._longest:
            raise HistoryDamaged(f"a line is longer than {self._longest:,} bytes", hint="move the file away")


__all__ = ["Change", "History"]

# A state, and what is said about it.
_LONGEST = MOST_BYTES + 64 * 1024
_NUMBER = re.compile(rb'\{"number":(\d{1,18}),')
_HEAD = 40


@dataclass(frozen=True, slots=True)
class History:
    """Reading needs no lock: what is not whole is not there yet. Who writes must hold the state's lock."""

    path: Path

    def newest(self, limit: int, before: int | None) -> list[Change]:
        """The newest changes, the newest first; only those below number `before`, if that is given."""
        with self._reading() as lines:
            if lines is None:
                return []
            end = _readable_end(lines)
            if before is not None:
                last = self._number(lines, lines.start_of(end - 1)) if end else 0
                if before <= last:
                    end = self._find(lines, end, before) if before > 1 else 0
            changes: list[Change] = []
            for _, line in lines.backwards(end):
                if len(changes) >= limit:
                    break
                changes.append(self._entry(line).change)
            return changes

    def state_at(self, number: int) -> dict[str, Any]:
        """The state after change `number`. Raises `NoSuchChange`, and `HistoryDamaged` if it is not what it was."""
        with self._reading() as lines:
            if lines is None:
                raise _unknown(number)
            end = _readable_end(lines)
            wanted = self._entry(lines.line(self._find(lines, end, number)))
            if wanted.state is not None:
                state = wanted.state
            else:
                state = self._followed(lines, self._find(lines, end, wanted.since), wanted)
        if digest_of(canonical(state)) != wanted.digest:
            raise self._damaged(f"change {number} does not lead to the state it tells of")
        return state

    def fixed(self, digest: str | None) -> HistoryEntry | None:
        """The last entry, after what a dead writer left is put in order; `digest` is that of the present state."""
        with self._writing() as descriptor:
            lines = HistoryLines(descriptor, longest=_LONGEST)
            left = read_entry(lines.tail()) if lines.size > lines.end else None
            if left is not None and left.digest == digest:
                os.write(descriptor, b"\n")
                os.fsync(descriptor)
                return left
            if lines.size > lines.end:
                os.ftruncate(descriptor, lines.end)
            end = _readable_end(lines)
            if end < lines.end:
                os.ftruncate(descriptor, end)
            if end == 0:
                return None
            return self._entry(lines.line(lines.start_of(end - 1)))

    @contextlib.contextmanager
    def adding(self, entry: HistoryEntry) -> Iterator[None]:
        """Write an entry that comes to count when the block, which makes its state the present one, has ended well."""
        with self._writing() as descriptor:
            before = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, entry.line())
                os.fsync(descriptor)
                yield
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, before)
                raise
            # The state is written and its entry too. Should the newline fail, the next writer sets it.
            with contextlib.suppress(OSError):
                os.write(descriptor, b"\n")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[HistoryLines | None]:
        try:
            descriptor = opened(self.path, os.O_RDONLY)
        except FileNotFoundError:
            yield None
            return
        try:
            yield HistoryLines(descriptor, longest=_LONGEST)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[int]:
        new = not self.path.exists()
        descriptor = opened(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if new:
                sync_directory(self.path.parent)
            yield descriptor
        finally:
            os.close(descriptor)

    def _followed(self, lines: HistoryLines, start: int, wanted: HistoryEntry) -> dict[str, Any]:
        """The state of a whole entry, and every difference from there up to the wanted one."""
        state: dict[str, Any] | None = None
        for line in lines.forwards(start):
            entry = self._entry(line)
            if state is None:
                state = entry.state
            elif entry.steps is not None:
                self._follow(state, entry)
            if state is None or entry.change.number >= wanted.change.number:
                break
        if state is None:
            raise self._damaged(f"change {wanted.since} should hold a whole state")
        return state

    def _follow(self, state: dict[str, Any], entry: HistoryEntry) -> None:
        try:
            follow(state, entry.steps or [])
        except (LookupError, TypeError, ValueError) as error:
            raise self._damaged(f"change {entry.change.number} does not fit the one before") from error

    def _find(self, lines: HistoryLines, end: int, number: int) -> int:
        """Where the line of change `number` begins. Raises `NoSuchChange`."""
        low, high = 0, end
        while low < high:
            start = lines.start_of((low + high) // 2)
            found = self._number(lines, start)
            if found == number:
                return start
            if found > number:
                high = start
            else:
                low = start + len(lines.line(start)) + 1
        raise _unknown(number)

    def _number(self, lines: HistoryLines, start: int) -> int:
        head = _NUMBER.match(lines.head(start, _HEAD))
        if head is None:
            raise self._damaged(f"the line at byte {start} is no entry")
        return int(head[1])

    def _entry(self, line: bytes) -> HistoryEntry:
        entry = read_entry(line)
        if entry is None:
            raise self._damaged(f"a line is no entry: {line[:60]!r}")
        return entry

    def _damaged(self, why: str) -> HistoryDamaged:
        return HistoryDamaged(f"{self.path} is damaged: {why}", hint="move it away; a new history begins")


def _readable_end(lines: HistoryLines) -> int:
    """Behind the last line that is an entry: a disk that lost its power may have left a last one that is none."""
    if lines.end == 0:
        return 0
    start = lines.start_of(lines.end - 1)
    return start if read_entry(lines.line(start)) is None else lines.end


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _unknown(number: int) -> NoSuchChange:
    return NoSuchChange(f"there is no change {number}", hint="history() lists those that there are")
