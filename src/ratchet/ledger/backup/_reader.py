"""Reading a backup from its first to its last byte, believing nothing.

The file may be cut off, damaged or made by somebody who means ill: nothing is unpacked by its name, no size is taken at
its word, and what is not expected is an error.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError

from ratchet.kernel import LedgerCorrupt, LedgerTooNew
from ratchet.ledger._columns import Json
from ratchet.ledger.backup._format import (
    CONTENTS,
    FORMAT,
    MANIFEST,
    MAX_JSON_BYTES,
    MAX_NUMBER,
    MAX_ROW_BYTES,
    TABLES,
    Contents,
    Manifest,
    Part,
    artifact_name,
    part_name,
)
from ratchet.ledger.counters import NUMBERED
from ratchet.ledger.schema import REVISIONS

_ROWS = 1000
# After the last member: the end of a tar and its padding.
_MAX_TAIL_BYTES = 1024 * 1024

Row = dict[str, Any]
Page = TypeVar("Page", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Visitor:
    """What to do with the things that are found. `artifact` reads the stream to its end and returns its hash."""

    rows: Callable[[sa.Table, list[Row]], None]
    artifact: Callable[[str, int, BinaryIO], str]


def read(file: BinaryIO, source: Path, visitor: Visitor) -> tuple[Manifest, Contents]:
    """Go through the whole backup and check all of it.

    Raises `LedgerCorrupt` at the first thing that is wrong, by which time the visitor has seen what came before it, and
    `LedgerTooNew` when a newer Ratchet wrote it.
    """
    file.seek(0)
    try:
        with _Careful(fileobj=file, mode="rb") as zipped:
            with tarfile.open(fileobj=zipped, mode="r:") as tar:
                found = _Walk(tar, visitor).walk()
            _check_tail(zipped)
            return found
    except _Wrong as error:
        reason = str(error)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = f"it is cut off or damaged ({error})"
    raise LedgerCorrupt(
        f"{source} is not a usable backup: {reason}", hint="use another one; the ledger was not changed"
    )


class _Wrong(Exception):
    """Something in the file is not as it must be."""


class _Careful(gzip.GzipFile):
    """The unpacked bytes, never many at once: a header may claim any size."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MAX_JSON_BYTES:
            raise _Wrong(f"a header claims {size} bytes")
        return super().read(size)


class _Walk:
    """One way through the archive, member by member."""

    def __init__(self, tar: tarfile.TarFile, visitor: Visitor) -> None:
        self._tar = tar
        self._visitor = visitor
        self._member = self._next()

    def walk(self) -> tuple[Manifest, Contents]:
        manifest = self._page(MANIFEST, Manifest)
        if manifest.counters.keys() != {table.name for table in NUMBERED}:
            raise _Wrong(f"{MANIFEST} does not have the counters of this schema")
        parts = [part for table in TABLES for part in self._parts(table)]
        sizes = list(self._artifacts())
        contents = self._page(CONTENTS, Contents)
        if self._member is not None:
            raise _Wrong(f"{self._member.name!r} is one too many")
        found = Contents(
            parts=parts, artifacts=len(sizes), artifact_bytes=sum(sizes), left_out=contents.left_out
        )
        if found != contents:
            raise _Wrong("its rows or artifacts are not those that were written")
        return manifest, contents

    def _parts(self, table: sa.Table) -> Iterator[Part]:
        number = 0
        while self._at(part_name(table.name, number)):
            yield self._part(table)
            number += 1

    def _part(self, table: sa.Table) -> Part:
        digest = hashlib.sha256()
        count = 0
        batch: list[Row] = []
        with self._opened() as stream:
            while line := stream.readline(MAX_ROW_BYTES + 1):
                digest.update(line)
                count += 1
                batch.append(_row(table, line))
                if len(batch) == _ROWS:
                    self._visitor.rows(table, batch)
                    batch = []
        if batch:
            self._visitor.rows(table, batch)
        self._member = self._next()
        return Part(table=table.name, rows=count, sha256=digest.hexdigest())

    def _artifacts(self) -> Iterator[int]:
        last = ""
        while self._member is not None and self._member.name.startswith(artifact_name("")):
            sha256 = self._member.name.removeprefix(artifact_name(""))
            if sha256 <= last:
                raise _Wrong(f"artifact {sha256!r} comes twice or out of order")
            last = sha256
            size = self._member.size
            with self._opened() as stream:
                if self._visitor.artifact(sha256, size, stream) != sha256:
                    raise _Wrong(f"artifact {sha256!r} does not match its hash")
            yield size
            self._member = self._next()

    def _page(self, name: str, model: type[Page]) -> Page:
        if not self._at(name):
            here = "nothing" if self._member is None else repr(self._member.name)
            raise _Wrong(f"there is {here} where {name} should be")
        with self._opened() as stream:
            text = stream.read(MAX_JSON_BYTES + 1)
        if len(text) > MAX_JSON_BYTES:
            raise _Wrong(f"{name} is too large")
        if model is Manifest:
            _check_versions(text)
        self._member = self._next()
        try:
            return model.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise _Wrong(f"{name} has a wrong {'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    def _at(self, name: str) -> bool:
        return self._member is not None and self._member.name == name

    def _opened(self) -> BinaryIO:
        assert self._member is not None
        stream = self._tar.extractfile(self._member)
        assert stream is not None
        return stream  # type: ignore[return-value]

    def _next(self) -> tarfile.TarInfo | None:
        member = self._tar.next()
        self._tar.members = []  # type: ignore[attr-defined]  # else it remembers every member
        if member is not None and (member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0):
            raise _Wrong(f"{member.name!r} is not a plain file")
        return member


def _check_versions(text: bytes) -> None:
    """Before anything else is looked at: a newer file may look like anything."""
    try:
        claimed = json.loads(text)
        format_, schema = int(claimed["format"]), str(claimed["schema_revision"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _Wrong(f"{MANIFEST} does not say what it is") from error
    by = claimed.get("ratchet_version")
    if format_ > FORMAT or schema not in REVISIONS:
        raise LedgerTooNew(
            f"the backup was written by Ratchet {by} (format {format_}, schema {schema}); this one knows format "
            f"{FORMAT} and schemas up to {REVISIONS[-1]}",
            hint="upgrade this Ratchet, then restore",
        )
    if schema != REVISIONS[-1]:
        raise _Wrong(
            f"its schema {schema} is older than this Ratchet's {REVISIONS[-1]}; restore it with Ratchet {by}, then "
            "open the ledger with this one, which brings it up to date"
        )


def _row(table: sa.Table, line: bytes) -> Row:
    if len(line) > MAX_ROW_BYTES:
        raise _Wrong(f"a row of {table.name} is too large")
    try:
        row = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"a row of {table.name} is not JSON") from error
    if not isinstance(row, dict) or row.keys() != set(table.columns.keys()):
        raise _Wrong(f"a row of {table.name} does not have its columns")
    for column in table.columns:
        if not _fits(column, row[column.name]):
            raise _Wrong(f"a row of {table.name} has a wrong {column.name}")
    return row


def _fits(column: sa.Column[Any], value: Any) -> bool:
    if value is None:
        return bool(column.nullable)
    if isinstance(column.type, Json):
        return True
    if isinstance(column.type, sa.Integer):
        limit = MAX_NUMBER if isinstance(column.type, sa.BigInteger) else 2**31
        least = 1 if column.primary_key and column.table.autoincrement_column is not None else -limit
        return type(value) is int and least <= value < limit
    if isinstance(column.type, sa.Boolean):
        return type(value) is bool
    if isinstance(column.type, sa.Float):
        return type(value) in (int, float)
    length = getattr(column.type, "length", None)
    return type(value) is str and (length is None or (value.isascii() and len(value) <= length))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check_tail(zipped: gzip.GzipFile) -> None:
    """Read to the end, where the checksum is; only padding may be there."""
    tail = zipped.read(_MAX_TAIL_BYTES + 1)
    if len(tail) > _MAX_TAIL_BYTES or tail.strip(b"\0"):
        raise _Wrong("there is something after its end")
