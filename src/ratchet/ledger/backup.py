"""Backups: the ledger and its home as one file that either database can take in, written while others work."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from ratchet import __version__
from ratchet.kernel import Conflict, LedgerCorrupt, LedgerUnavailable, Misuse
from ratchet.ledger._columns import to_json
from ratchet.ledger.check import counters
from ratchet.ledger.database import REVISIONS
from ratchet.ledger.home import FilesDigest, HomeFiles
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.tables import artifact_contents, artifacts, events, metadata
from ratchet.ledger.transaction import Transaction

# A change that an older Ratchet cannot read raises it. Without the home, a backup is what it was at 1.
FORMAT = 2
_LEDGER_ONLY = 1
MANIFEST = "manifest.json"
CONTENTS = "contents.json"
# Room for millions of rows in parts; a real one is a thousand times smaller.
MAX_JSON_BYTES = 64 * 1024 * 1024
PART_BYTES = 4 * 1024 * 1024
MAX_ROW_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
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
    """Adds members to an open archive and keeps account of them."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._parts: list[BackupPart] = []
        self._left_out: list[str] = []
        self._artifacts = self._artifact_bytes = 0
        self._home: HomeFiles | None = None
        self._files = FilesDigest()

    def add_manifest(self, manifest: Manifest) -> None:
        self._add_bytes(MANIFEST, manifest.model_dump_json(indent=2).encode())

    def add_rows(self, table: sa.Table, rows: Iterable[sa.RowMapping]) -> None:
        for number, lines in enumerate(_parts(rows)):
            content = b"".join(lines)
            self._add_bytes(part_name(table.name, number), content)
            digest = hashlib.sha256(content).hexdigest()
            self._parts.append(BackupPart(table=table.name, rows=len(lines), sha256=digest))

    def add_artifact(self, sha256: str, content: bytes | Path) -> None:
        """Add what is in the database or in a file, unless it is missing or does not match its hash."""
        try:
            file = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        except FileNotFoundError:
            self._left_out.append(sha256)
            return
        with file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                self._left_out.append(sha256)
                return
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            self._add(artifact_name(sha256), file, size)
        self._artifacts += 1
        self._artifact_bytes += size

    def add_home(self, home: HomeFiles) -> None:
        self._home = home
        for path, mode, content, size in home.files():
            read = _Hashed(content)
            self._add(file_name(path), read, size, mode)  # type: ignore[arg-type]  # all that is asked of it
            self._files.add(path, mode, size, read.hexdigest())

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

    def _add_bytes(self, name: str, content: bytes) -> None:
        self._add(name, io.BytesIO(content), len(content))

    def _add(self, name: str, content: BinaryIO, size: int, mode: int = 0o600) -> None:
        member = tarfile.TarInfo(name)
        member.size = size
        member.mode = mode
        self._tar.addfile(member, content)
        self._tar.members = []  # type: ignore[attr-defined]  # else it remembers every member


class _Hashed:
    """Hashes what is read."""

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        chunk = self._content.read(size)
        self._digest.update(chunk)
        return chunk

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _parts(rows: Iterable[sa.RowMapping]) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    size = 0
    for row in rows:
        lines.append(_line(row))
        size += len(lines[-1])
        if size >= PART_BYTES:
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
# Rows shrink well at any level, artifacts seldom do; more effort would only take longer.
_LEVEL = 3


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds. `left_out` are artifacts that are missing or damaged in the ledger itself."""

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
    try:
        _refuse_other_files(target)
        found = HomeFiles(ledger.artifacts.root.parent, keys) if home else None
        with _replacing(target) as out:
            manifest, contents = _write(ledger, out, target.parent, like, found)
            size = out.tell()
    except OSError as error:
        raise LedgerUnavailable(
            f"the backup could not be written to {target}: {error}",
            hint="choose a place that can be written and has room; nothing was left behind",
        ) from error
    return BackupReport(
        path=target,
        bytes=size,
        taken_at=manifest.taken_at,
        rows=contents.rows(),
        artifacts=contents.artifacts,
        artifact_bytes=contents.artifact_bytes,
        left_out=tuple(contents.left_out),
        files=contents.files,
        file_bytes=contents.file_bytes,
        files_left_out=tuple(contents.files_left_out),
    )


def _write(
    ledger: Ledger, out: BinaryIO, directory: Path, like: Manifest | None, home: HomeFiles | None
) -> tuple[Manifest, Contents]:
    # The hold comes first: the files that the snapshot names stay until they are copied.
    with (
        ledger.artifacts.held(),
        tempfile.TemporaryFile(dir=directory) as spool,
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=_LEVEL) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        archive = Writer(tar)
        with ledger.read() as tx:
            if home is not None:
                _read_refs(ledger, tx, home)
            manifest = _manifest(tx, like, _LEDGER_ONLY if home is None else FORMAT)
            archive.add_manifest(manifest)
            for table in TABLES:
                archive.add_rows(table, _rows(tx, table))
            for sha256, content in _contents(tx):
                spool.write(b"%s %d\n" % (sha256.encode(), -1 if content is None else len(content)))
                spool.write(content or b"")
        # The snapshot is closed by now: it would keep the database from cleaning up for as long as packing takes.
        spool.seek(0)
        while line := spool.readline():
            sha256, size = line.decode().split()
            in_database = int(size) >= 0
            archive.add_artifact(
                sha256, spool.read(int(size)) if in_database else ledger.artifacts.path(sha256)
            )
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


def _manifest(tx: Transaction, like: Manifest | None, format_: int) -> Manifest:
    return Manifest(
        format=format_,
        schema_revision=REVISIONS[-1],
        ratchet_version=__version__ if like is None else like.ratchet_version,
        taken_at=tx.now if like is None else like.taken_at,
        counters=counters(tx.connection),
    )


def _rows(tx: Transaction, table: sa.Table) -> Iterable[sa.RowMapping]:
    query = sa.select(table).order_by(*table.primary_key.columns)
    return tx.connection.execute(query, execution_options={"yield_per": _ROWS}).mappings()


def _contents(tx: Transaction) -> Iterator[tuple[str, bytes | None]]:
    """Every hash that an artifact has, in their order, with its content if that is in the database."""
    query = (
        sa.select(artifacts.c.sha256, artifact_contents.c.content)
        .outerjoin(artifact_contents, artifact_contents.c.artifact_id == artifacts.c.id)
        # Where one of several has its content here, it comes first.
        .order_by(artifacts.c.sha256, artifact_contents.c.artifact_id.is_(None), artifacts.c.id)
    )
    last = None
    for sha256, content in tx.connection.execute(query, execution_options={"yield_per": _CONTENTS}):
        if sha256 != last:
            yield sha256, content
        last = sha256


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
    try:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if partial.stat().st_ino == os.fstat(out.fileno()).st_ino:
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    raise Conflict(f"another backup to {target} is under way", hint="wait for it, or choose another name")
