"""Putting a backup in the place of a ledger and its home, in either database."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.files import name_files, sync, sync_file_system, try_lock, write_new
from ratchet.kernel import Conflict, LedgerCorrupt, LedgerUnavailable, Misuse, NotFound
from ratchet.ledger.archive import Archive, TarArchive, chunks
from ratchet.ledger.artifacts import INLINE_BYTES
from ratchet.ledger.backup import TABLES, Contents, Manifest, backup
from ratchet.ledger.backup_directory import BackupDirectory
from ratchet.ledger.backup_reader import OlderSchema, Visitor, digest_of, read, read_revision
from ratchet.ledger.check import NUMBERED, raise_counter
from ratchet.ledger.database import REVISIONS, make_engine, migrate
from ratchet.ledger.home import (
    CONFIGURATION,
    DIRECTORIES,
    FILES,
    KEYS,
    beside_database,
    is_database_with_more,
    write_file,
)
from ratchet.ledger.ledger import RESTORE_MARK, Ledger
from ratchet.ledger.processes import RETIRED, living_processes
from ratchet.ledger.tables import artifact_contents, artifacts, jobs, processes
from ratchet.ledger.transaction import Transaction


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
    number: int | None = None,
) -> RestoreReport:
    """Make the ledger what it was when the backup `source` was taken; of a directory, the newest or that `number`.

    All of it is checked before anything changes. Then all rows change in one transaction. The processes of the old
    world are forgotten; the jobs they had are handed on by the first worker that starts, as those of any unknown one.
    Right behind that, what the backup has of the home takes the place of what is there, unless `ledger_only` or it is
    there already; a `ratchet.toml` that is there stays. After a crash the home is as it was, or it is marked as half
    restored and cannot be opened until it is restored again.

    Raises `Conflict` when the ledger holds something and `force` is not given, or, always, while processes work on it
    (heard of within `dead_after_seconds`); `LedgerCorrupt` when the backup is damaged; `LedgerTooNew` when it is from
    a newer Ratchet. One of an older schema is upgraded in a database of its own first.
    """
    with ledger.read() as tx:
        _refuse(tx, force, dead_after_seconds)
    try:
        with (
            _opened(source, number) as archive,
            _HalfRestored(ledger, source, number, ledger_only) as mark,
            _up_to_date(ledger, archive) as current,
        ):
            return _restore(ledger, current, force, dead_after_seconds, ledger_only, mark)
    except OSError as error:
        raise LedgerUnavailable(
            f"the backup {source} could not be read: {error}", hint="is it there, and may this user read it?"
        ) from error


@contextlib.contextmanager
def _opened(source: Path, number: int | None) -> Iterator[Archive]:
    if source.is_dir():
        with BackupDirectory(source).reading(number) as archive:
            yield archive
    elif number is not None:
        raise Misuse(f"{source} holds one backup", hint="give a number only for a directory of backups")
    else:
        with source.open("rb") as file:
            yield TarArchive(file, source)


class _HalfRestored:
    """Has the home say that it is half restored, from before the first change until the last is on disk.

    A home that is empty says so from the beginning: it would look like one in which nothing ever happened.
    """

    def __init__(self, ledger: Ledger, source: Path, number: int | None, ledger_only: bool) -> None:
        self._ledger = ledger
        self._home = ledger.artifacts.root.parent
        self._mark = self._home / RESTORE_MARK
        chosen = [f"--number {number}"] if number else []
        chosen += ["--ledger-only"] if ledger_only else []
        self._finish = " ".join(["ratchet restore", shlex.quote(str(source.absolute())), *chosen, "--force"])
        self._unchanged = True

    def __enter__(self) -> _HalfRestored:
        self._home.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._home, os.O_RDONLY | os.O_CLOEXEC)
        if not try_lock(self._lock):
            os.close(self._lock)
            raise Conflict(f"another restore into {self._home} is under way", hint="wait for it")
        for left in self._home.glob("restore-*/"):
            shutil.rmtree(left, ignore_errors=True)
        # What an earlier one has changed is not undone by this one being refused.
        self._unchanged = not self._mark.exists()
        with self._ledger.read() as tx:
            if self._unchanged and not _filled(tx):
                self.write()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self._unchanged:
            self._mark.unlink(missing_ok=True)
            sync(self._home)
        os.close(self._lock)

    def write(self) -> None:
        beside = f"{self._mark}.new"
        Path(beside).unlink(missing_ok=True)
        write_new(beside, self._finish.encode(), 0o600)
        name_files([(beside, str(self._mark))], Path.mkdir)

    def change(self) -> None:
        """To be called just before the first change is committed."""
        self._unchanged = False


@contextlib.contextmanager
def _up_to_date(ledger: Ledger, archive: Archive) -> Iterator[Archive]:
    """The backup itself; of an older schema, one that was made of it by the migrations in a database of its own."""
    revision = read_revision(archive)
    if revision == REVISIONS[-1]:
        yield archive
        return
    home = ledger.artifacts.root.parent
    with tempfile.TemporaryDirectory(dir=home, prefix="restore-") as name:
        place = Path(name)
        try:
            _upgrade(archive, revision, place)
        except exc.DBAPIError as error:
            raise LedgerCorrupt(
                f"{archive.source} of schema {revision} could not be upgraded to {REVISIONS[-1]}: {error.orig}",
                hint="restore it with the Ratchet that wrote it, then open that ledger with this one",
            ) from error
        with (place / "upgraded").open("rb") as upgraded:
            yield TarArchive(upgraded, archive.source)


def _upgrade(archive: Archive, revision: str, place: Path) -> None:
    """Write `place/upgraded`: the backup with its rows as they are at this Ratchet's schema."""
    url = f"sqlite:///{place / 'ledger.db'}"
    engine = make_engine(url)
    with engine.begin() as connection:
        migrate(connection, revision)
    older = sa.MetaData()
    older.reflect(engine)
    store = Ledger(url, place / "artifacts").artifacts

    def insert(table: sa.Table, rows: list[dict[str, Any]]) -> None:
        named = sa.table(table.name, *(sa.column(column.name) for column in table.columns))
        wanted = [row for row in rows if table.name != processes.name or row["id"] == RETIRED]
        if wanted:
            connection.execute(sa.insert(named), wanted)

    def keep(_sha256: str, _size: int, stream: BinaryIO) -> str:
        return store.keep(chunks(stream))[0]

    with engine.connect() as connection:
        # A table may come before the one whose rows it names; the reading of the result finds what is missing.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.commit()
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        schema = OlderSchema(revision, dict(older.tables))
        files = _NewHome(place, place, {*DIRECTORIES, *FILES, *KEYS})
        manifest, contents = read(archive, Visitor(insert, keep, files.file), schema)
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
    archive: Archive,
    force: bool,
    dead_after_seconds: float,
    ledger_only: bool,
    mark: _HalfRestored,
) -> RestoreReport:
    look = _Look(ledger, ledger_only)
    manifest, contents = read(
        archive, Visitor(rows=lambda _table, _rows: None, artifact=look.artifact, file=look.file)
    )
    look.check_room()
    if not force:
        look.refuse_replacing()
    mark.write()
    home = ledger.artifacts.root.parent
    with tempfile.TemporaryDirectory(dir=home, prefix="restore-") as name:
        new = _NewHome(home, Path(name), look.changed)
        report = _restore_rows(ledger, archive, force, dead_after_seconds, manifest, contents, new, mark)
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
        return write_file(self._new, path, mode, stream) if _top(path) in self.names else digest_of(stream)

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
            there = self._home / name
            for each in (there, *beside_database(there)):
                if each.exists():
                    each.rename(self._old / each.name)
            (self._new / name).rename(there)
        sync_file_system(self._home)


def _top(path: str) -> str:
    return path.split("/", maxsplit=1)[0]


def _restore_rows(
    ledger: Ledger,
    archive: Archive,
    force: bool,
    dead_after_seconds: float,
    manifest: Manifest,
    contents: Contents,
    new: _NewHome,
    mark: _HalfRestored,
) -> RestoreReport:
    # Held until the rows are committed: no collector takes a file that no row names yet.
    with ledger.artifacts.held(), ledger.write(actor="restore") as tx:
        _be_alone(tx)
        _refuse(tx, force, dead_after_seconds)
        newest = tx.connection.execute(sa.select(sa.func.max(jobs.c.delivery))).scalar() or 0
        for table in reversed(TABLES):
            tx.connection.execute(sa.delete(table))
        again = read(
            archive,
            Visitor(
                rows=lambda table, rows: _insert(tx, table, rows),
                artifact=lambda _sha256, size, stream: _put_back(ledger, tx, size, stream),
                file=new.file,
            ),
        )
        if again != (manifest, contents):
            raise LedgerCorrupt(
                f"{archive.source} was changed while it was restored", hint="the ledger was not changed"
            )
        _check_files(tx, ledger, contents, archive.source)
        new.finish(contents)
        _outdate_leases(tx, newest)
        for name, number in manifest.counters.items():
            raise_counter(tx.connection, name, number)
        data = {"taken_at": manifest.taken_at, "by": manifest.ratchet_version, "rows": contents.rows()}
        tx.event("ledger.restored", message=archive.source.name, data=data)
        mark.change()
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
        digest = digest_of(stream)
        if size > INLINE_BYTES and digest == sha256 and not self._store.path(sha256).exists():
            self._needed += size
        return digest

    def file(self, path: str, _mode: int, stream: BinaryIO) -> str:
        digest = digest_of(stream)
        self._sizes[_top(path)] += stream.tell()
        there = self._home / path
        if self._ledger_only or (path == CONFIGURATION and there.exists()):
            return digest
        try:
            with there.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == digest
            same = same and not is_database_with_more(there)
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
    filled = _filled(tx)
    if filled and not force:
        raise Conflict(
            f"the ledger is not empty: it has {', '.join(filled)}",
            hint="restore with --force to replace all of it; take a backup first",
        )


def _filled(tx: Transaction) -> list[str]:
    """The tables that have rows."""
    return [
        table.name
        for table in TABLES
        if table is not processes
        and tx.connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first()
    ]


def _insert(tx: Transaction, table: sa.Table, rows: list[dict[str, Any]]) -> None:
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
        return ledger.artifacts.keep(chunks(stream), renew=True)[0]
    content = stream.read()
    sha256 = hashlib.sha256(content).hexdigest()
    named = sa.select(artifacts.c.id, sa.literal(content, sa.LargeBinary)).where(artifacts.c.sha256 == sha256)
    tx.connection.execute(sa.insert(artifact_contents).from_select(["artifact_id", "content"], named))
    return sha256


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
