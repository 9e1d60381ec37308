"""Backups: the ledger and its home in a form that either database can take in, written while others work."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from ratchet import __version__
from ratchet.files import try_lock
from ratchet.kernel import Conflict, LedgerCorrupt, LedgerUnavailable, Misuse, NotFound
from ratchet.ledger._columns import to_json
from ratchet.ledger.archive import MemberWriter, TarWriter
from ratchet.ledger.artifacts import ArtifactStore
from ratchet.ledger.backup_directory import BackupDirectory
from ratchet.ledger.check import NUMBERED, counters
from ratchet.ledger.database import REVISIONS, current_revision, make_engine, migrate
from ratchet.ledger.home import FilesDigest, HomeFiles
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.tables import artifact_contents, artifacts, events, metadata
from ratchet.ledger.transaction import Transaction

# A change that an older Ratchet cannot read raises it. Without the home, a backup is what it was at 1.
FORMAT = 3
LEDGER_ONLY = 1
MANIFEST = "manifest.json"
CONTENTS = "contents.json"
PART_BYTES = 4 * 1024 * 1024
# About so many rows in a part: whatever changes in one stores all of it again.
_PART_ROWS = 512
MAX_ROW_BYTES = 256 * 1024 * 1024
# Far above what a ledger reaches, and far enough below 64 bits to count on from there.
MAX_NUMBER = 2**62

# In an order in which each row finds those it names. Contents of artifacts are members of their own.
TABLES = tuple(table for table in metadata.sorted_tables if table is not artifact_contents)

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Page(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Manifest(_Page):
    """What the file is a backup of."""

    format: int
    schema_revision: str
    ratchet_version: str
    taken_at: int
    counters: dict[str, Annotated[int, Field(ge=0, lt=MAX_NUMBER)]]


class BackupPart(_Page):
    """Some rows of one table."""

    table: str
    rows: NonNegativeInt
    sha256: Sha256


class Contents(_Page):
    """Everything between the two pages. `left_out` are artifacts that the ledger itself had lost, and
    `files_left_out` what could not be taken from the home."""

    parts: list[BackupPart]
    artifacts: NonNegativeInt
    artifact_bytes: NonNegativeInt
    left_out: list[Sha256]
    files: NonNegativeInt = 0
    file_bytes: NonNegativeInt = 0
    files_sha256: Sha256 | None = None
    directories: list[str] = []
    links: dict[str, str] = {}
    files_left_out: list[str] = []

    def rows(self) -> dict[str, int]:
        """How many rows there are of each table."""
        total: Counter[str] = Counter()
        for part in self.parts:
            total[part.table] += part.rows
        return dict(total)


def part_name(table: str, number: int) -> str:
    return f"tables/{table}.{number}"


def artifact_name(sha256: str) -> str:
    return f"artifacts/{sha256}"


def file_name(path: str) -> str:
    return f"files/{path}"


class Writer:
    """Adds members to an archive and keeps account of them."""

    def __init__(self, out: MemberWriter) -> None:
        self._out = out
        self._parts: list[BackupPart] = []
        self._left_out: list[str] = []
        self._artifacts = self._artifact_bytes = 0
        self._home: HomeFiles | None = None
        self._files = FilesDigest()

    def add_manifest(self, manifest: Manifest) -> None:
        self._add_bytes(MANIFEST, manifest.model_dump_json(indent=2).encode())

    def add_rows(self, table: sa.Table, rows: Iterable[sa.RowMapping], first: int = 0) -> None:
        for number, lines in enumerate(_parts(table, rows), first):
            sha256 = self._add_bytes(part_name(table.name, number), b"".join(lines))
            self._parts.append(BackupPart(table=table.name, rows=len(lines), sha256=sha256))

    def keep_rows(self, parts: Sequence[BackupPart]) -> None:
        """Take the first parts of a table as the backup before has them."""
        for number, part in enumerate(parts):
            self._out.keep(part_name(part.table, number))
            self._parts.append(part)

    def keep_artifact(self, sha256: str) -> bool:
        """Whether the backup before had it, which is taken from there then."""
        kept = self._out.keep(artifact_name(sha256))
        if kept is not None:
            self._artifacts += 1
            self._artifact_bytes += kept.size
        return kept is not None

    def add_large(self, sha256: str, store: ArtifactStore) -> None:
        """Add what is no row, unless it is missing or does not match its hash."""
        try:
            file = store.open_large(sha256)
        except (NotFound, LedgerCorrupt):
            self._left_out.append(sha256)
        else:
            self.add_artifact(sha256, file)

    def add_artifact(self, sha256: str, file: io.BytesIO | io.BufferedReader) -> None:
        """Add a content, unless it does not match its hash."""
        with file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                self._left_out.append(sha256)
                return
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            self._out.add(artifact_name(sha256), file, size)
        self._artifacts += 1
        self._artifact_bytes += size

    def add_home(self, home: HomeFiles) -> None:
        self._home = home
        for path, mode, content, size, stamp in home.files(self._keep_file):
            sha256 = self._out.add(file_name(path), content, size, mode, stamp)
            self._files.add(path, mode, size, sha256)

    def _keep_file(self, path: str, mode: int, size: int, stamp: str) -> bool:
        kept = self._out.keep(file_name(path), mode, size, stamp)
        if kept is not None:
            self._files.add(path, mode, size, kept.sha256)
        return kept is not None

    def add_contents(self) -> Contents:
        contents = Contents(
            parts=self._parts,
            artifacts=self._artifacts,
            artifact_bytes=self._artifact_bytes,
            left_out=self._left_out,
        )
        if self._home is not None:
            held = {
                "files": self._files.files,
                "file_bytes": self._files.bytes,
                "files_sha256": self._files.hexdigest(),
                "directories": self._home.directories,
                "links": self._home.links,
                "files_left_out": self._home.left_out,
            }
            contents = contents.model_copy(update=held)
        self._add_bytes(CONTENTS, contents.model_dump_json(indent=2).encode())
        return contents

    def _add_bytes(self, name: str, content: bytes) -> str:
        return self._out.add(name, io.BytesIO(content), len(content))


def _parts(table: sa.Table, rows: Iterable[sa.RowMapping]) -> Iterator[list[bytes]]:
    """Cut where keys say so, so that a row that was changed, added or removed leaves the other parts as they were."""
    keys = [column.name for column in table.primary_key]
    lines: list[bytes] = []
    size = 0
    for row in rows:
        lines.append(_line(row))
        size += len(lines[-1])
        key = to_json([row[name] for name in keys]).encode()
        if size >= PART_BYTES or zlib.crc32(key) % _PART_ROWS == 0:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _line(row: sa.RowMapping) -> bytes:
    line = to_json(dict(row)).encode() + b"\n"
    if len(line) > MAX_ROW_BYTES:
        raise LedgerCorrupt(f"a row of {len(line)} bytes is too large to be backed up")
    return line


_ROWS = 1000
_CONTENTS = 100
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds. `bytes` were written for it, `left_out` are artifacts that are missing or damaged in the
    ledger itself, and `removed` the older backups that were not to be kept."""

    path: Path
    bytes: int
    taken_at: int
    rows: dict[str, int]
    artifacts: int
    artifact_bytes: int
    left_out: tuple[str, ...]
    files: int
    file_bytes: int
    files_left_out: tuple[str, ...]
    removed: tuple[str, ...] = ()


def backup(
    ledger: Ledger, target: Path, *, home: bool = False, keys: bool = False, like: Manifest | None = None
) -> BackupReport:
    """Write the ledger, as it is at this moment, to the file `target`; others may continue working.

    With `home` also the repositories, versions and settings of its home, as they are at the same moment: writers wait
    while the refs are read. The keys are secrets, and come along only with `keys`.

    The file appears whole or not at all, in the place of an older backup of that name. Artifacts that the ledger has
    lost are left out and reported. Raises `Conflict` when `target` is another kind of file, or is being written, and
    `LedgerUnavailable` when it cannot be written. Made of another backup, it is as old as the one it is `like`.
    """
    with _explained(target):
        _refuse_other_files(target)
        found = HomeFiles(ledger.artifacts.root.parent, keys) if home else None
        with _replacing(target) as file:
            with TarWriter.opened(file) as out:
                manifest, contents = _write(ledger, out, target.parent, like, found)
            size = file.tell()
    return _report(target, size, manifest, contents)


def backup_into(ledger: Ledger, place: Path, *, keys: bool = False, keep: int | None = None) -> BackupReport:
    """Add a backup of the ledger and its home to the directory `place`, which stores only what it does not have yet.

    The same otherwise. Files of the home that have not changed since the last backup are not read, nor are events and
    contents of artifacts that it has. With `keep` only so many backups stay, the newest.
    """
    with _explained(place):
        directory = BackupDirectory(place)
        with directory.writing() as out:
            found = HomeFiles(ledger.artifacts.root.parent, keys)
            manifest, contents = _write(ledger, out, out.incoming, None, found)
            path = out.finish(manifest.taken_at)
            removed = directory.keep(keep) if keep else []
    return _report(path, out.bytes, manifest, contents, removed)


@contextlib.contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LedgerUnavailable(
            f"the backup could not be written to {target}: {error}",
            hint="choose a place that can be written and has room; nothing was left behind",
        ) from error


def _report(
    path: Path, size: int, manifest: Manifest, contents: Contents, removed: Sequence[str] = ()
) -> BackupReport:
    return BackupReport(
        path=path,
        bytes=size,
        taken_at=manifest.taken_at,
        rows=contents.rows(),
        artifacts=contents.artifacts,
        artifact_bytes=contents.artifact_bytes,
        left_out=tuple(contents.left_out),
        files=contents.files,
        file_bytes=contents.file_bytes,
        files_left_out=tuple(contents.files_left_out),
        removed=tuple(removed),
    )


def _write(
    ledger: Ledger, out: MemberWriter, directory: Path, like: Manifest | None, home: HomeFiles | None
) -> tuple[Manifest, Contents]:
    # The hold comes first: the files that the snapshot names stay until they are copied.
    with ledger.artifacts.held(), tempfile.TemporaryFile(dir=directory) as spool:
        archive = Writer(out)
        with ledger.read() as tx:
            if home is not None:
                _read_refs(ledger, tx, home)
            revision = current_revision(tx.connection) or REVISIONS[-1]
            # A ledger that was not upgraded yet is backed up as it is.
            tables = TABLES if revision == REVISIONS[-1] else tables_of(revision)
            manifest = _manifest(tx, like, LEDGER_ONLY if home is None else FORMAT, revision, tables)
            archive.add_manifest(manifest)
            for table in tables:
                kept, first = _unchanged(tx, out) if table is events else ([], 0)
                archive.keep_rows(kept)
                archive.add_rows(table, _rows(tx, table, first), len(kept))
            for sha256, content in _contents(tx, out):
                spool.write(b"%s %d\n" % (sha256.encode(), -1 if content is None else len(content)))
                spool.write(content or b"")
        # The snapshot is closed by now: it would keep the database from cleaning up for as long as packing takes.
        spool.seek(0)
        while line := spool.readline():
            sha256, size = line.decode().split()
            if int(size) >= 0:
                archive.add_artifact(sha256, io.BytesIO(spool.read(int(size))))
            elif not archive.keep_artifact(sha256):
                archive.add_large(sha256, ledger.artifacts)
        if home is not None:
            archive.add_home(home)
        return manifest, archive.add_contents()


def _read_refs(ledger: Ledger, tx: Transaction, home: HomeFiles) -> None:
    """Let the snapshot and the refs be of one moment: a ref is moved just before its row, and no row comes now."""
    with ledger.write(actor="backup") as alone:
        if alone.on_postgresql:
            # What happens is an event of its transaction. One table, so that no two wait for each other.
            alone.connection.execute(sa.text("SET LOCAL lock_timeout = '30s'"))
            alone.connection.execute(sa.text(f"LOCK TABLE {events.name} IN SHARE MODE"))
        # The first statement of the other transaction decides what it sees.
        tx.connection.execute(sa.select(artifacts.c.id).limit(1)).all()
        home.read_refs()


def tables_of(revision: str) -> tuple[sa.Table, ...]:
    """The tables of a schema, as an empty database of it has them; without contents of artifacts."""
    with tempfile.TemporaryDirectory() as place:
        engine = make_engine(f"sqlite:///{place}/ledger.db")
        with engine.begin() as connection:
            migrate(connection, revision)
        older = sa.MetaData()
        older.reflect(engine)
        engine.dispose()
    for table in older.sorted_tables:
        now = metadata.tables.get(table.name)
        for column in table.columns:
            # Else a value would be taken for the text that it is stored as.
            if now is not None and column.name in now.c:
                column.type = now.c[column.name].type
    left_out = ("alembic_version", artifact_contents.name)
    return tuple(table for table in older.sorted_tables if table.name not in left_out)


def _manifest(
    tx: Transaction, like: Manifest | None, format_: int, revision: str, tables: Sequence[sa.Table]
) -> Manifest:
    numbered = [table.name for table in NUMBERED if table.name in {each.name for each in tables}]
    return Manifest(
        format=format_,
        schema_revision=revision,
        ratchet_version=__version__ if like is None else like.ratchet_version,
        taken_at=tx.now if like is None else like.taken_at,
        counters=counters(tx.connection, numbered),
    )


def _rows(tx: Transaction, table: sa.Table, first: int) -> Iterable[sa.RowMapping]:
    """The rows of a table; of one that is numbered, from the row `first` on."""
    query = sa.select(table).order_by(*table.primary_key.columns)
    if first:
        query = query.where(table.c.id >= first)
    return tx.connection.execute(query, execution_options={"yield_per": _ROWS}).mappings()


def _unchanged(tx: Transaction, out: MemberWriter) -> tuple[list[BackupPart], int]:
    """The parts of events that the backup before has, and which number comes after them.

    An event is never changed, and none comes late: where the last part is as it was, all before it are. It is another
    one when an older state was restored meanwhile.
    """
    try:
        manifest = Manifest.model_validate_json(out.before(MANIFEST) or b"")
        found = Contents.model_validate_json(out.before(CONTENTS) or b"").parts
    except ValidationError:  # there is none, or it is of a newer Ratchet
        return [], 0
    parts = [part for part in found if part.table == events.name]
    last = out.before(part_name(events.name, len(parts) - 1))
    whole = all(out.has(part_name(events.name, number)) for number in range(len(parts)))
    if last is None or not whole or manifest.schema_revision != REVISIONS[-1]:
        return [], 0
    first = json.loads(last.partition(b"\n")[0])["id"]
    query = sa.select(events).where(events.c.id >= first).order_by(events.c.id).limit(parts[-1].rows)
    if b"".join(map(_line, tx.connection.execute(query).mappings())) != last:
        return [], 0
    return parts[:-1], first


def _contents(tx: Transaction, out: MemberWriter) -> Iterator[tuple[str, bytes | None]]:
    """Every hash that an artifact has, in their order, with its content if that is in the database and not known."""
    in_database = sa.inspect(tx.connection).has_table(artifact_contents.name)
    query = sa.select(artifacts.c.sha256).distinct().order_by(artifacts.c.sha256)
    hashes = tx.connection.execute(query, execution_options={"yield_per": _ROWS}).scalars()
    while some := list(itertools.islice(hashes, _CONTENTS)):
        new = [sha256 for sha256 in some if not out.has(artifact_name(sha256))]
        held = (
            sa.select(artifacts.c.sha256, artifact_contents.c.content)
            .join(artifact_contents, artifact_contents.c.artifact_id == artifacts.c.id)
            .where(artifacts.c.sha256.in_(new))
            .order_by(artifacts.c.id.desc())
        )
        # Where several have it, the oldest is taken.
        found = dict(tx.connection.execute(held).all()) if new and in_database else {}
        yield from ((sha256, found.get(sha256)) for sha256 in some)


def _refuse_other_files(target: Path) -> None:
    if target.is_dir():
        raise Misuse(f"{target} is a directory", hint="name a file in it, such as ledger.tar.gz")
    with contextlib.suppress(FileNotFoundError), target.open("rb") as old:
        start = old.read(2)
        if start and start != _GZIP_MAGIC:
            raise Conflict(f"{target} exists and is not a backup", hint="choose another name")


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `target` when the block ends well.

    It has a fixed name, so that one left behind by a killed process is reused by the next backup.
    """
    partial = target.with_name(target.name + ".partial")
    with os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as out:
        _own(out, partial, target)
        out.truncate()
        try:
            yield out
            out.flush()
            os.fsync(out.fileno())
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _own(out: BinaryIO, partial: Path, target: Path) -> None:
    """Be the only writer of `partial`. Raises `Conflict` when somebody else is, or has just put it in its place."""
    with contextlib.suppress(FileNotFoundError):
        if try_lock(out) and partial.stat().st_ino == os.fstat(out.fileno()).st_ino:
            return
    raise Conflict(f"another backup to {target} is under way", hint="wait for it, or choose another name")
