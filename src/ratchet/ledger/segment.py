"""A file of records that are written one behind the other, and over again from its start when they are not needed.

Its blocks are there from the beginning, so a record is certain after one short wait for its content alone. Each record
carries the token of its turn, which nobody can guess: what is behind the last one is of an earlier turn, or torn, or
content that looks like a record, and counts for nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ratchet.ledger.disk import File, write_all

SEGMENT_BYTES = 2 * 1024 * 1024
_TOKEN_BYTES = 16
_HEAD = struct.Struct(f"<8s{_TOKEN_BYTES}sQIII")
_MAGIC = b"ratchet\x02"


class Recorded(NamedTuple):
    """A file as a record has it, and when that was written. Paths are relative to the base if they lie there."""

    path: str
    temporary: str
    mode: int
    changes: bool
    at: int
    content: bytes


class Segment:
    """One such file, in the hands of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            write_all(self._descriptor, bytes(SEGMENT_BYTES))
            os.fsync(self._descriptor)
        except BaseException:
            os.close(self._descriptor)
            raise
        self.begin()

    def begin(self) -> None:
        """Start anew: the records that there are count for nothing once there is another."""
        self._token, self._at = secrets.token_bytes(_TOKEN_BYTES), 0

    def has_room(self, record: Sequence[bytes]) -> bool:
        return self._at + _HEAD.size + sum(map(len, record)) <= SEGMENT_BYTES

    def append(self, record: Sequence[bytes], at: int) -> None:
        """Write what `record_of` made; it is certain when this returns. If it raises, the record may be there."""
        body = b"".join(record)
        whole = _HEAD.pack(_MAGIC, self._token, at, len(record[0]), len(body), zlib.crc32(body)) + body
        written = 0
        while written < len(whole):
            written += os.pwrite(self._descriptor, memoryview(whole)[written:], self._at + written)
        os.fdatasync(self._descriptor)
        self._at += len(whole)

    def close(self) -> None:
        os.close(self._descriptor)


def record_of(files: Sequence[File], base: str) -> list[bytes]:
    names = [
        [
            file.name.removeprefix(base),
            file.temporary.removeprefix(base),
            file.mode,
            file.changes,
            len(file.content),
        ]
        for file in files
    ]
    return [json.dumps(names).encode(), *(file.content for file in files)]


def recorded(path: Path) -> Iterator[Recorded]:
    """The files of every whole record of the last turn, oldest first."""
    content = path.read_bytes()
    start, turn = 0, None
    while start + _HEAD.size <= len(content):
        magic, token, at, names, size, check = _HEAD.unpack_from(content, start)
        body = content[start + _HEAD.size : start + _HEAD.size + size]
        if magic != _MAGIC or turn not in (None, token) or len(body) != size or zlib.crc32(body) != check:
            return
        turn, begin = token, names
        for name, temporary, mode, changes, length in json.loads(body[:names]):
            yield Recorded(name, temporary, mode, changes, at, body[begin : begin + length])
            begin += length
        start += _HEAD.size + size
