"""Reading a backup from its first to its last byte, believing nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError

from ratchet.kernel import LedgerCorrupt, LedgerTooNew, sendable
from ratchet.ledger._columns import Json, to_json
from ratchet.ledger.archive import MAX_JSON_BYTES, Archive, DamagedBackup, MemberReader, chunks
from ratchet.ledger.backup import (
    CONTENTS,
    FORMAT,
    LEDGER_ONLY,
    MANIFEST,
    MAX_NUMBER,
    MAX_ROW_BYTES,
    TABLES,
    BackupPart,
    Contents,
    Manifest,
    artifact_name,
    file_name,
    part_name,
)
from ratchet.ledger.check import NUMBERED
from ratchet.ledger.database import REVISIONS
from ratchet.ledger.home import FilesDigest, is_inside, is_place, straying
from ratchet.ledger.tables import metadata

_ROWS = 1000

Row = dict[str, Any]
Page = TypeVar("Page", bound=BaseModel)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Visitor:
    """What to do with the things that are found. `artifact`, and `file` of the home, which is given its place and mode,
    read the stream to its end and return its hash."""

    rows: Callable[[sa.Table, list[Row]], None]
    artifact: Callable[[str, int, BinaryIO], str]
    file: Callable[[str, int, BinaryIO], str]


def read(archive: Archive, visitor: Visitor, older: OlderSchema | None = None) -> tuple[Manifest, Contents]:
    """Go through the whole backup and check all of it.

    Raises `LedgerCorrupt` at the first thing that is wrong, by which time the visitor has seen what came before it, and
    `LedgerTooNew` when a newer Ratchet wrote it. With `older` its rows are those of that schema.
    """

    def walk(members: MemberReader) -> tuple[Manifest, Contents]:
        found = (_Walk(members, visitor) if older is None else _OlderWalk(members, visitor, older)).walk()
        members.finish()
        return found

    return _read(archive, walk)


def read_revision(archive: Archive) -> str:
    """The schema of a backup. Raises `LedgerTooNew` and `LedgerCorrupt`."""
    return _read(archive, lambda members: _Walk(members).revision())


def _read(archive: Archive, walk: Callable[[MemberReader], Found]) -> Found:
    try:
        with archive.members() as members:
            return walk(members)
    except DamagedBackup as error:
        reason = str(error)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = f"it is cut off or damaged ({error})"
    raise LedgerCorrupt(
        f"{archive.source} is not a usable backup: {reason}",
        hint="use another one; the ledger was not changed",
    )


class _Walk:
    """One way through the archive, member by member."""

    def __init__(self, members: MemberReader, visitor: Visitor | None = None) -> None:
        self._members = members
        self._visitor = visitor or Visitor(
            rows=lambda _table, _rows: None,
            artifact=lambda _sha256, _size, stream: digest_of(stream),
            file=lambda _path, _mode, stream: digest_of(stream),
        )
        self._places: set[str] = set()
        self._member = members.next()

    def revision(self) -> str:
        return self._page(MANIFEST, Manifest).schema_revision

    def walk(self) -> tuple[Manifest, Contents]:
        manifest = self._page(MANIFEST, Manifest)
        self._check_manifest(manifest)
        parts = [part for table in self._tables() for part in self._parts(table)]
        sizes = list(self._artifacts())
        files = self._files()
        contents = self._page(CONTENTS, Contents)
        if self._member is not None:
            raise DamagedBackup(f"{self._member.name!r} is one too many")
        found = {
            "parts": parts,
            "artifacts": len(sizes),
            "artifact_bytes": sum(sizes),
            "files": files.files,
            "file_bytes": files.bytes,
            "files_sha256": files.hexdigest() if manifest.format > LEDGER_ONLY else None,
        }
        if contents.model_copy(update=found) != contents:
            raise DamagedBackup("its rows, artifacts or files are not those that were written")
        for path, target in contents.links.items():
            if not is_place(path) or not is_inside(path, target):
                raise DamagedBackup(f"the link {path!r} leads out of the home")
        if not all(map(is_place, contents.directories)):
            raise DamagedBackup("it has a directory that is not of a home")
        for path in straying(contents.links):
            raise DamagedBackup(f"the link {path!r} leads out of the home by way of others")
        self._places.update(contents.directories)
        for path in (*contents.directories, *contents.links):
            self._places.update(_parents(path))
        for path in contents.links:
            if path in self._places:
                raise DamagedBackup(f"the link {path!r} is where something else is")
        return manifest, contents

    def _check_manifest(self, manifest: Manifest) -> None:
        if manifest.schema_revision != REVISIONS[-1]:
            raise DamagedBackup(f"its schema is {manifest.schema_revision}, not {REVISIONS[-1]}")
        if manifest.counters.keys() != {table.name for table in NUMBERED}:
            raise DamagedBackup(f"{MANIFEST} does not have the counters of this schema")

    def _tables(self) -> Iterator[sa.Table]:
        return iter(TABLES)

    def _row(self, table: sa.Table, line: bytes) -> Row:
        row = _parsed(table, line)
        for column in table.columns:
            if not _fits(column, row[column.name]):
                raise DamagedBackup(f"a row of {table.name} has a wrong {column.name}")
        return row

    def _parts(self, table: sa.Table) -> Iterator[BackupPart]:
        number = 0
        while self._at(part_name(table.name, number)):
            yield self._part(table)
            number += 1

    def _part(self, table: sa.Table) -> BackupPart:
        digest = hashlib.sha256()
        count = 0
        batch: list[Row] = []
        with self._members.content() as stream:
            while line := stream.readline(MAX_ROW_BYTES + 1):
                digest.update(line)
                count += 1
                batch.append(self._row(table, line))
                if len(batch) == _ROWS:
                    self._visitor.rows(table, batch)
                    batch = []
        if batch:
            self._visitor.rows(table, batch)
        self._member = self._members.next()
        return BackupPart(table=table.name, rows=count, sha256=digest.hexdigest())

    def _artifacts(self) -> Iterator[int]:
        last = ""
        while self._member is not None and self._member.name.startswith(artifact_name("")):
            sha256 = self._member.name.removeprefix(artifact_name(""))
            if sha256 <= last:
                raise DamagedBackup(f"artifact {sha256!r} comes twice or out of order")
            last = sha256
            size = self._member.size
            with self._members.content() as stream:
                if self._visitor.artifact(sha256, size, stream) != sha256:
                    raise DamagedBackup(f"artifact {sha256!r} does not match its hash")
            yield size
            self._member = self._members.next()

    def _files(self) -> FilesDigest:
        found = FilesDigest()
        while self._member is not None and self._member.name.startswith(file_name("")):
            path, mode, size = (
                self._member.name.removeprefix(file_name("")),
                self._member.mode,
                self._member.size,
            )
            if not is_place(path) or mode & ~0o700:
                raise DamagedBackup(f"{path!r} with mode {mode:o} is not a file of a home")
            with self._members.content() as stream:
                found.add(path, mode, size, self._visitor.file(path, mode, stream))
            self._places.add(path)
            self._places.update(_parents(path))
            self._member = self._members.next()
        return found

    def _page(self, name: str, model: type[Page]) -> Page:
        if not self._at(name):
            here = "nothing" if self._member is None else repr(self._member.name)
            raise DamagedBackup(f"there is {here} where {name} should be")
        with self._members.content() as stream:
            text = stream.read(MAX_JSON_BYTES + 1)
        if len(text) > MAX_JSON_BYTES:
            raise DamagedBackup(f"{name} is too large")
        if model is Manifest:
            _check_versions(text)
        self._member = self._members.next()
        try:
            return model.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise DamagedBackup(
                f"{name} has a wrong {'.'.join(map(str, first['loc']))}: {first['msg']}"
            ) from error

    def _at(self, name: str) -> bool:
        return self._member is not None and self._member.name == name


@dataclass(frozen=True, slots=True)
class OlderSchema:
    """The tables of an older Ratchet, as an empty database of its schema has them."""

    revision: str
    tables: dict[str, sa.Table]


class _OlderWalk(_Walk):
    """The same for a backup of an older schema. Its values are checked when they have been upgraded."""

    def __init__(self, members: MemberReader, visitor: Visitor, schema: OlderSchema) -> None:
        super().__init__(members, visitor)
        self._schema = schema

    def _check_manifest(self, manifest: Manifest) -> None:
        if manifest.schema_revision != self._schema.revision:
            raise DamagedBackup(f"its schema is {manifest.schema_revision}, not {self._schema.revision}")

    def _tables(self) -> Iterator[sa.Table]:
        """In the order in which they come: only the older Ratchet knew which one that is."""
        left = dict(self._schema.tables)
        while self._member is not None and self._member.name.startswith("tables/"):
            name = self._member.name.removeprefix("tables/").rpartition(".")[0]
            if name not in left:
                raise DamagedBackup(f"{self._member.name!r} is of no table of schema {self._schema.revision}")
            yield left.pop(name)

    def _row(self, table: sa.Table, line: bytes) -> Row:
        now = metadata.tables.get(table.name)
        row = _parsed(table, line)
        for name, value in row.items():
            if isinstance(value, int) and abs(value) >= MAX_NUMBER:
                raise DamagedBackup(f"a row of {table.name} has a wrong {name}")
            is_json = now is not None and name in now.c and isinstance(now.c[name].type, Json)
            if value is not None and (is_json or isinstance(value, dict | list)):
                row[name] = to_json(value)
            elif isinstance(value, str):
                row[name] = sendable(value)
        return row


def _parents(path: str) -> Iterator[str]:
    """The directories that a place is below of, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _check_versions(text: bytes) -> None:
    """Before anything else is looked at: a newer file may look like anything."""
    try:
        claimed = json.loads(text)
        format_, schema = int(claimed["format"]), str(claimed["schema_revision"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedBackup(f"{MANIFEST} does not say what it is") from error
    by = claimed.get("ratchet_version")
    if format_ > FORMAT or schema not in REVISIONS:
        raise LedgerTooNew(
            f"the backup was written by Ratchet {by} (format {format_}, schema {schema}); this one knows format "
            f"{FORMAT} and schemas up to {REVISIONS[-1]}",
            hint="upgrade this Ratchet, then restore",
        )


def _parsed(table: sa.Table, line: bytes) -> Row:
    if len(line) > MAX_ROW_BYTES:
        raise DamagedBackup(f"a row of {table.name} is too large")
    try:
        row = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedBackup(f"a row of {table.name} is not JSON") from error
    if not isinstance(row, dict) or row.keys() != set(table.columns.keys()):
        raise DamagedBackup(f"a row of {table.name} does not have its columns")
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


def digest_of(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    for chunk in chunks(stream):
        digest.update(chunk)
    return digest.hexdigest()
