"""Putting a backup back, into either database: read from its first to its last byte, believing nothing."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import shutil
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError
from sqlalchemy import exc

from ratchet.kernel import Conflict, LedgerCorrupt, LedgerTooNew, LedgerUnavailable, NotFound
from ratchet.ledger._columns import Json, to_json
from ratchet.ledger.artifacts import INLINE_BYTES
from ratchet.ledger.backup import (
    CHUNK_BYTES,
    CONTENTS,
    FORMAT,
    MANIFEST,
    MAX_JSON_BYTES,
    MAX_NUMBER,
    MAX_ROW_BYTES,
    TABLES,
    BackupPart,
    Contents,
    Manifest,
    artifact_name,
    backup,
    file_name,
    part_name,
)
from ratchet.ledger.check import NUMBERED, raise_counter
from ratchet.ledger.database import REVISIONS, make_engine, migrate
from ratchet.ledger.files import sync_file_system
from ratchet.ledger.home import (
    CONFIGURATION,
    DIRECTORIES,
    KEYS,
    FilesDigest,
    is_inside,
    is_place,
    write_file,
)
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.processes import RETIRED, living_processes
from ratchet.ledger.tables import artifact_contents, artifacts, jobs, metadata, processes
from ratchet.ledger.transaction import Transaction

_ROWS = 1000
# After the last member: the end of a tar and its padding.
_MAX_TAIL_BYTES = 1024 * 1024

Row = dict[str, Any]
Page = TypeVar("Page", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Visitor:
    """What to do with the things that are found. `artifact`, and `file` of the home, which is given its place and mode,
    read the stream to its end and return its hash."""

    rows: Callable[[sa.Table, list[Row]], None]
    artifact: Callable[[str, int, BinaryIO], str]
    file: Callable[[str, int, BinaryIO], str]


def read(
    file: BinaryIO, source: Path, visitor: Visitor, older: OlderSchema | None = None
) -> tuple[Manifest, Contents]:
    """Go through the whole backup and check all of it.

    Raises `LedgerCorrupt` at the first thing that is wrong, by which time the visitor has seen what came before it, and
    `LedgerTooNew` when a newer Ratchet wrote it. With `older` its rows are those of that schema.
    """
    with _unpacked(file, source) as (zipped, tar):
        found = (_Walk(tar, visitor) if older is None else _OlderWalk(tar, visitor, older)).walk()
        _check_tail(zipped)
        return found


def read_revision(file: BinaryIO, source: Path) -> str:
    """The schema of a backup. Raises `LedgerTooNew` and `LedgerCorrupt`."""
    with _unpacked(file, source) as (_, tar):
        return _Walk(tar).revision()


@contextlib.contextmanager
def _unpacked(file: BinaryIO, source: Path) -> Iterator[tuple[_Careful, tarfile.TarFile]]:
    file.seek(0)
    try:
        with (
            _Careful(fileobj=file, mode="rb") as zipped,
            tarfile.open(fileobj=zipped, mode="r:") as tar,
        ):
            try:
                yield zipped, tar
            except LedgerTooNew:
                # Unless its versions are damaged: the checksum is at the end.
                for _ in _chunks(zipped):
                    pass
                raise
    except _Wrong as error:
        reason = str(error)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = f"it is cut off or damaged ({error})"
    else:
        return
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

    def __init__(self, tar: tarfile.TarFile, visitor: Visitor | None = None) -> None:
        self._tar = tar
        self._visitor = visitor or Visitor(
            rows=lambda _table, _rows: None,
            artifact=lambda _sha256, _size, stream: _digest(stream),
            file=lambda _path, _mode, stream: _digest(stream),
        )
        self._member = self._next()

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
            raise _Wrong(f"{self._member.name!r} is one too many")
        found = {
            "parts": parts,
            "artifacts": len(sizes),
            "artifact_bytes": sum(sizes),
            "files": files.files,
            "file_bytes": files.bytes,
            "files_sha256": files.hexdigest() if manifest.format == FORMAT else None,
        }
        if contents.model_copy(update=found) != contents:
            raise _Wrong("its rows, artifacts or files are not those that were written")
        for path, target in contents.links.items():
            if not is_place(path) or not is_inside(path, target):
                raise _Wrong(f"the link {path!r} leads out of the home")
        if not all(map(is_place, contents.directories)):
            raise _Wrong("it has a directory that is not of a home")
        return manifest, contents

    def _check_manifest(self, manifest: Manifest) -> None:
        if manifest.schema_revision != REVISIONS[-1]:
            raise _Wrong(f"its schema is {manifest.schema_revision}, not {REVISIONS[-1]}")
        if manifest.counters.keys() != {table.name for table in NUMBERED}:
            raise _Wrong(f"{MANIFEST} does not have the counters of this schema")

    def _tables(self) -> Iterator[sa.Table]:
        return iter(TABLES)

    def _row(self, table: sa.Table, line: bytes) -> Row:
        row = _parsed(table, line)
        for column in table.columns:
            if not _fits(column, row[column.name]):
                raise _Wrong(f"a row of {table.name} has a wrong {column.name}")
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
        with self._opened() as stream:
            while line := stream.readline(MAX_ROW_BYTES + 1):
                digest.update(line)
                count += 1
                batch.append(self._row(table, line))
                if len(batch) == _ROWS:
                    self._visitor.rows(table, batch)
                    batch = []
        if batch:
            self._visitor.rows(table, batch)
        self._member = self._next()
        return BackupPart(table=table.name, rows=count, sha256=digest.hexdigest())

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

    def _files(self) -> FilesDigest:
        found = FilesDigest()
        while self._member is not None and self._member.name.startswith(file_name("")):
            path, mode, size = (
                self._member.name.removeprefix(file_name("")),
                self._member.mode,
                self._member.size,
            )
            if not is_place(path) or mode & ~0o700:
                raise _Wrong(f"{path!r} with mode {mode:o} is not a file of a home")
            with self._opened() as stream:
                found.add(path, mode, size, self._visitor.file(path, mode, stream))
            self._member = self._next()
        return found

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


@dataclass(frozen=True, slots=True)
class OlderSchema:
    """The tables of an older Ratchet, as an empty database of its schema has them."""

    revision: str
    tables: dict[str, sa.Table]


class _OlderWalk(_Walk):
    """The same for a backup of an older schema. Its values are checked when they have been upgraded."""

    def __init__(self, tar: tarfile.TarFile, visitor: Visitor, schema: OlderSchema) -> None:
        super().__init__(tar, visitor)
        self._schema = schema

    def _check_manifest(self, manifest: Manifest) -> None:
        if manifest.schema_revision != self._schema.revision:
            raise _Wrong(f"its schema is {manifest.schema_revision}, not {self._schema.revision}")

    def _tables(self) -> Iterator[sa.Table]:
        """In the order in which they come: only the older Ratchet knew which one that is."""
        left = dict(self._schema.tables)
        while self._member is not None and self._member.name.startswith("tables/"):
            name = self._member.name.removeprefix("tables/").rpartition(".")[0]
            if name not in left:
                raise _Wrong(f"{self._member.name!r} is of no table of schema {self._schema.revision}")
            yield left.pop(name)

    def _row(self, table: sa.Table, line: bytes) -> Row:
        now = metadata.tables.get(table.name)
        row = _parsed(table, line)
        for name, value in row.items():
            if isinstance(value, int) and abs(value) >= MAX_NUMBER:
                raise _Wrong(f"a row of {table.name} has a wrong {name}")
            is_json = now is not None and name in now.c and isinstance(now.c[name].type, Json)
            if value is not None and (is_json or isinstance(value, dict | list)):
                row[name] = to_json(value)
            elif isinstance(value, str):
                row[name] = value.encode("utf-8", "replace").decode()
        return row


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


def _parsed(table: sa.Table, line: bytes) -> Row:
    if len(line) > MAX_ROW_BYTES:
        raise _Wrong(f"a row of {table.name} is too large")
    try:
        row = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"a row of {table.name} is not JSON") from error
    if not isinstance(row, dict) or row.keys() != set(table.columns.keys()):
        raise _Wrong(f"a row of {table.name} does not have its columns")
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


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was put back. `left_out` are artifacts that were lost before the backup was taken; `home` names what of the
    home was not there as the backup has it."""

    taken_at: int
    ratchet_version: str
    rows: dict[str, int]
    artifacts: int
    artifact_bytes: int
    left_out: tuple[str, ...]
    files: int
    home: tuple[str, ...]


def restore(
    ledger: Ledger,
    source: Path,
    *,
    force: bool = False,
    dead_after_seconds: float = 60.0,
    ledger_only: bool = False,
) -> RestoreReport:
    """Make the ledger what it was when the backup `source` was taken.

    The whole file is checked before anything changes. Then all rows change in one transaction: after a crash the ledger
    is as it was, and restoring may be repeated. The processes of the old world are forgotten; the jobs they had are
    handed on by the first worker that starts, as those of any unknown process. Right behind that, what the backup has
    of the home takes the place of what is there, unless `ledger_only` or it is there already; a `ratchet.toml` that is
    there stays.

    Raises `Conflict` when the ledger holds something and `force` is not given, or, always, while processes work on it
    (heard of within `dead_after_seconds`); `LedgerCorrupt` when the backup is damaged; `LedgerTooNew` when it is from
    a newer Ratchet. One of an older schema is upgraded in a database of its own first.
    """
    with ledger.read() as tx:
        _refuse(tx, force, dead_after_seconds)
    try:
        with source.open("rb") as file, _up_to_date(ledger, file, source) as current:
            return _restore(ledger, current, source, force, dead_after_seconds, ledger_only)
    except OSError as error:
        raise LedgerUnavailable(
            f"the backup {source} could not be read: {error}", hint="is it there, and may this user read it?"
        ) from error


@contextlib.contextmanager
def _up_to_date(ledger: Ledger, file: BinaryIO, source: Path) -> Iterator[BinaryIO]:
    """The backup itself; of an older schema, one that was made of it by the migrations in a database of its own."""
    revision = read_revision(file, source)
    if revision == REVISIONS[-1]:
        yield file
        return
    home = ledger.artifacts.root.parent
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="restore-") as name:
        place = Path(name)
        try:
            _upgrade(file, source, revision, place)
        except exc.DBAPIError as error:
            raise LedgerCorrupt(
                f"{source} of schema {revision} could not be upgraded to {REVISIONS[-1]}: {error.orig}",
                hint="restore it with the Ratchet that wrote it, then open that ledger with this one",
            ) from error
        with (place / "upgraded").open("rb") as upgraded:
            yield upgraded


def _upgrade(file: BinaryIO, source: Path, revision: str, place: Path) -> None:
    """Write `place/upgraded`: the backup with its rows as they are at this Ratchet's schema."""
    url = f"sqlite:///{place / 'ledger.db'}"
    engine = make_engine(url)
    with engine.begin() as connection:
        migrate(connection, revision)
    older = sa.MetaData()
    older.reflect(engine)
    store = Ledger(url, place / "artifacts").artifacts

    def insert(table: sa.Table, rows: list[Row]) -> None:
        named = sa.table(table.name, *(sa.column(column.name) for column in table.columns))
        wanted = [row for row in rows if table.name != processes.name or row["id"] == RETIRED]
        if wanted:
            connection.execute(sa.insert(named), wanted)

    def keep(_sha256: str, _size: int, stream: BinaryIO) -> str:
        return store.keep(_chunks(stream))[0]

    with engine.connect() as connection:
        # A table may come before the one whose rows it names; the reading of the result finds what is missing.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.commit()
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        schema = OlderSchema(revision, dict(older.tables))
        files = _NewHome(place, place, {*DIRECTORIES, *KEYS, CONFIGURATION})
        manifest, contents = read(file, source, Visitor(insert, keep, files.file), schema)
        connection.commit()
    engine.dispose()
    with Ledger.open(url, place / "artifacts") as upgraded:
        with upgraded.write(actor="restore") as tx:
            for table in NUMBERED:
                raise_counter(tx.connection, table.name, manifest.counters.get(table.name, 0))
        if contents.files_sha256 is None:
            backup(upgraded, place / "upgraded", like=manifest)
            return
        files.finish(contents)
        for each in (place / "new").iterdir():
            each.rename(place / each.name)
        backup(upgraded, place / "upgraded", home=True, keys=True, like=manifest)


def _restore(
    ledger: Ledger,
    file: BinaryIO,
    source: Path,
    force: bool,
    dead_after_seconds: float,
    ledger_only: bool,
) -> RestoreReport:
    look = _Look(ledger, ledger_only)
    manifest, contents = read(
        file, source, Visitor(rows=lambda _table, _rows: None, artifact=look.artifact, file=look.file)
    )
    look.check_room()
    if not force:
        look.refuse_replacing()
    home = ledger.artifacts.root.parent
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="restore-") as name:
        new = _NewHome(home, Path(name), look.changed)
        report = _restore_rows(ledger, file, source, force, dead_after_seconds, manifest, contents, new)
        new.take_place()
    return report


class _NewHome:
    """The files of the home, beside those that they are to replace."""

    def __init__(self, home: Path, place: Path, names: set[str]) -> None:
        self.names = sorted(names)
        self._home = home
        self._new = place / "new"
        self._old = place / "old"

    def file(self, path: str, mode: int, stream: BinaryIO) -> str:
        return write_file(self._new, path, mode, stream) if _top(path) in self.names else _digest(stream)

    def finish(self, contents: Contents) -> None:
        """Make directories and links, and put all of it on disk. Links come last: nothing is written through one."""
        self._new.mkdir(exist_ok=True)
        for path in contents.directories:
            if _top(path) in self.names:
                (self._new / path).mkdir(parents=True, exist_ok=True)
        for path, target in contents.links.items():
            if _top(path) in self.names:
                (self._new / path).parent.mkdir(parents=True, exist_ok=True)
                (self._new / path).symlink_to(target)
        sync_file_system(self._new)

    def take_place(self) -> None:
        self._old.mkdir()
        for name in self.names:
            if (self._home / name).exists():
                (self._home / name).rename(self._old / name)
            (self._new / name).rename(self._home / name)
        sync_file_system(self._home)


def _top(path: str) -> str:
    return path.split("/", maxsplit=1)[0]


def _digest(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(stream):
        digest.update(chunk)
    return digest.hexdigest()


def _restore_rows(
    ledger: Ledger,
    file: BinaryIO,
    source: Path,
    force: bool,
    dead_after_seconds: float,
    manifest: Manifest,
    contents: Contents,
    new: _NewHome,
) -> RestoreReport:
    # Held until the rows are committed: no collector takes a file that no row names yet.
    with ledger.artifacts.held(), ledger.write(actor="restore") as tx:
        _be_alone(tx)
        _refuse(tx, force, dead_after_seconds)
        newest = tx.connection.execute(sa.select(sa.func.max(jobs.c.delivery))).scalar() or 0
        for table in reversed(TABLES):
            tx.connection.execute(sa.delete(table))
        again = read(
            file,
            source,
            Visitor(
                rows=lambda table, rows: _insert(tx, table, rows),
                artifact=lambda _sha256, size, stream: _put_back(ledger, tx, size, stream),
                file=new.file,
            ),
        )
        if again != (manifest, contents):
            raise LedgerCorrupt(
                f"{source} was changed while it was restored", hint="the ledger was not changed"
            )
        _check_files(tx, ledger, contents, source)
        new.finish(contents)
        _outdate_leases(tx, newest)
        for name, number in manifest.counters.items():
            raise_counter(tx.connection, name, number)
        data = {"taken_at": manifest.taken_at, "by": manifest.ratchet_version, "rows": contents.rows()}
        tx.event("ledger.restored", message=source.name, data=data)
    return RestoreReport(
        taken_at=manifest.taken_at,
        ratchet_version=manifest.ratchet_version,
        rows=contents.rows(),
        artifacts=contents.artifacts,
        artifact_bytes=contents.artifact_bytes,
        left_out=tuple(contents.left_out),
        files=contents.files,
        home=tuple(new.names),
    )


class _Look:
    """The first reading: it only checks, finds what of the home is not there yet, and adds up the room it needs."""

    def __init__(self, ledger: Ledger, ledger_only: bool) -> None:
        self._store = ledger.artifacts
        self._home = ledger.artifacts.root.parent
        self._ledger_only = ledger_only
        self._needed = 0
        self._sizes: Counter[str] = Counter()
        self.changed: set[str] = set()

    def artifact(self, sha256: str, size: int, stream: BinaryIO) -> str:
        digest = _digest(stream)
        if size > INLINE_BYTES and digest == sha256 and not self._store.path(sha256).exists():
            self._needed += size
        return digest

    def file(self, path: str, _mode: int, stream: BinaryIO) -> str:
        digest = _digest(stream)
        self._sizes[_top(path)] += stream.tell()
        there = self._home / path
        if self._ledger_only or (path == CONFIGURATION and there.exists()):
            return digest
        try:
            with there.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == digest
        except OSError:
            same = False
        if not same:
            self.changed.add(_top(path))
        return digest

    def refuse_replacing(self) -> None:
        filled = sorted(name for name in self.changed if _is_filled(self._home / name))
        if filled:
            raise Conflict(
                f"{self._home} has other files than the backup in {', '.join(filled)}",
                hint="restore with --force to replace them, or with --ledger-only to leave them",
            )

    def check_room(self) -> None:
        place = self._store.root
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        self._needed += sum(self._sizes[name] for name in self.changed)
        if self._needed > free:
            raise LedgerUnavailable(
                f"the backup's artifacts and files need {self._needed} bytes, but {place} has {free} left",
                hint="free some space, then restore; the ledger was not changed",
            )


def _is_filled(place: Path) -> bool:
    return place.exists() and (not place.is_dir() or any(place.iterdir()))


def _be_alone(tx: Transaction) -> None:
    """Keep all other writers out until the end; on SQLite a writer is alone anyway."""
    if tx.on_postgresql:
        names = ", ".join(table.name for table in TABLES)
        tx.connection.execute(sa.text("SET LOCAL lock_timeout = '30s'"))
        tx.connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        tx.connection.execute(sa.text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))


def _refuse(tx: Transaction, force: bool, dead_after_seconds: float) -> None:
    living = living_processes(tx.connection, tx.now, dead_after_seconds)
    if living:
        raise Conflict(
            f"processes are working on this ledger: {'; '.join(map(str, living))}",
            hint="stop them first; one of another machine that was killed counts as gone after "
            f"{dead_after_seconds:g} s",
        )
    filled = [
        table.name
        for table in TABLES
        if table is not processes
        and tx.connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first()
    ]
    if filled and not force:
        raise Conflict(
            f"the ledger is not empty: it has {', '.join(filled)}",
            hint="restore with --force to replace all of it; take a backup first",
        )


def _insert(tx: Transaction, table: sa.Table, rows: list[Row]) -> None:
    wanted = rows if table is not processes else [row for row in rows if row["id"] == RETIRED]
    if not wanted:
        return
    try:
        tx.connection.execute(sa.insert(table), wanted)
    except exc.IntegrityError as error:
        raise LedgerCorrupt(
            f"the backup contradicts itself in {table.name}: {error.orig}",
            hint="use another one; the ledger was not changed",
        ) from error


def _put_back(ledger: Ledger, tx: Transaction, size: int, stream: BinaryIO) -> str:
    """Put the content of artifacts where one of its size belongs; its hash."""
    if size > INLINE_BYTES:
        return ledger.artifacts.keep(_chunks(stream), renew=True)[0]
    content = stream.read()
    sha256 = hashlib.sha256(content).hexdigest()
    named = sa.select(artifacts.c.id, sa.literal(content, sa.LargeBinary)).where(artifacts.c.sha256 == sha256)
    tx.connection.execute(sa.insert(artifact_contents).from_select(["artifact_id", "content"], named))
    return sha256


def _chunks(stream: BinaryIO | gzip.GzipFile) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk


def _check_files(tx: Transaction, ledger: Ledger, contents: Contents, source: Path) -> None:
    lost = set(contents.left_out)
    query = (
        sa.select(artifacts.c.sha256)
        .outerjoin(artifact_contents, artifact_contents.c.artifact_id == artifacts.c.id)
        .where(artifact_contents.c.artifact_id.is_(None))
        .distinct()
        .order_by(artifacts.c.sha256)
    )
    for sha256 in tx.connection.execute(query, execution_options={"yield_per": 1000}).scalars():
        if sha256 not in lost and not _is_there(ledger, sha256):
            raise LedgerCorrupt(
                f"{source} is not a usable backup: artifact {sha256} is named but not in it",
                hint="use another one; the ledger was not changed",
            )


def _is_there(ledger: Ledger, sha256: str) -> bool:
    try:
        return ledger.artifacts.path(sha256).exists()
    except NotFound:
        return False


def _outdate_leases(tx: Transaction, newest: int) -> None:
    """A worker may still hold a job of the world that is gone: let it write nothing in this one."""
    tx.connection.execute(
        sa.update(jobs).where(jobs.c.ended_at.is_(None)).values(delivery=jobs.c.delivery + newest)
    )
