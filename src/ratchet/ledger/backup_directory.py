"""Backups in a directory, of which each stores only what the others have not.

`blobs/ab/cdef…` are contents by their hash, packed by gzip; `backups/NUMBER-TIME.gz` is the index of one backup: the
name, mode, size and hash of each member, in their order. Blobs are on disk before they have their names, and the index
comes last: a backup that was killed is not there, and the ones before it are as they were.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import shutil
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ratchet.files import name_files, sync, take_lock, try_lock
from ratchet.kernel import Conflict, LedgerCorrupt, LedgerTooNew, Misuse
from ratchet.ledger.archive import (
    CHUNK_BYTES,
    LEVEL,
    MAX_JSON_BYTES,
    BackupMember,
    DamagedBackup,
    MemberReader,
    chunks,
)

_FORMAT = 1
_BACKUPS, _BLOBS, _INCOMING, _LOCK = "backups", "blobs", "incoming", "lock"
_MAX_LINE_BYTES = 64 * 1024
# Named together: putting a file on disk takes long, and many take no longer than one.
_TOGETHER = 500
_TOGETHER_BYTES = 64 * 1024 * 1024
_HEX = set("0123456789abcdef")


class IndexEntry(NamedTuple):
    """A member of a backup. `stamp` tells whether its file was changed since; without one, nothing is known."""

    name: str
    mode: int
    size: int
    sha256: str
    stamp: str


class BackupDirectory:
    """A directory of backups. One process writes, and any number read meanwhile."""

    def __init__(self, place: Path) -> None:
        self.place = place.absolute()

    def indexes(self) -> list[Path]:
        """The index of each backup, oldest first."""
        return sorted((self.place / _BACKUPS).glob("*.gz"))

    def index(self, number: int | None) -> Path:
        """The index of a backup, of the newest if no number is given. Raises `Misuse`."""
        found = self.indexes()
        for each in reversed(found):
            if number is None or int(each.name.partition("-")[0]) == number:
                return each
        if not found:
            raise Misuse(f"{self.place} holds no backup", hint="name a directory that `ratchet backup` wrote")
        raise Misuse(
            f"{self.place} has no backup {number}",
            hint=f"there are: {', '.join(each.stem for each in found)}",
        )

    @contextlib.contextmanager
    def reading(self, number: int | None) -> Iterator[DirectoryArchive]:
        """One of the backups, of which nothing is removed meanwhile."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # on a medium that cannot be written there may be no lock
                lock = stack.enter_context((self.place / _LOCK).open("rb"))
                take_lock(lock, shared=True)
            yield DirectoryArchive(self.place, self.index(number))

    @contextlib.contextmanager
    def writing(self) -> Iterator[DirectoryWriter]:
        """A new backup. Raises `Conflict` while another process writes one, or reads one."""
        self._refuse_other_directories()
        incoming = self.place / _INCOMING
        for directory in (self.place, self.place / _BACKUPS, self.place / _BLOBS):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.place / _LOCK).open("ab") as lock:
            if not try_lock(lock):
                raise Conflict(
                    f"another process writes or reads a backup in {self.place}", hint="wait for it to end"
                )
            shutil.rmtree(incoming, ignore_errors=True)
            incoming.mkdir(mode=0o700)
            with DirectoryWriter(self) as writer:
                yield writer
            shutil.rmtree(incoming, ignore_errors=True)

    def blob(self, sha256: str) -> Path:
        return self.place / _BLOBS / sha256[:2] / sha256[2:]

    def keep(self, count: int) -> list[str]:
        """Remove all but the newest backups, and the blobs that only those had; the names of what was removed.

        Only while `writing`. Raises `LedgerCorrupt` if the index of one that stays cannot be read.
        """
        removed, kept = self.indexes()[:-count], self.indexes()[-count:]
        if not removed:
            return []
        try:
            named = {bytes.fromhex(entry.sha256) for each in kept for entry in entries(each)}
        except (DamagedBackup, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise LedgerCorrupt(
                f"no older backup was removed from {self.place}: an index cannot be read: {error}",
                hint="the new backup is whole; remove the index that is damaged, then back up again",
            ) from error
        for each in removed:
            each.unlink()
        # Before the blobs: what is removed halfway must not look like a backup.
        sync(self.place / _BACKUPS)
        for blob in (self.place / _BLOBS).glob("??/*"):
            if bytes.fromhex(blob.parent.name + blob.name) not in named:
                blob.unlink()
        return [each.stem for each in removed]

    def _refuse_other_directories(self) -> None:
        if self.place.is_dir():
            others = {each.name for each in self.place.iterdir()} - {_BACKUPS, _BLOBS, _INCOMING, _LOCK}
            if others:
                raise Conflict(
                    f"{self.place} has other things in it: {', '.join(sorted(others)[:3])}",
                    hint="name a directory that is empty, is not there yet, or has backups in it",
                )
        elif self.place.exists():
            raise Misuse(
                f"{self.place} is a file",
                hint="name a directory; `ratchet ledger backup FILE` writes one file",
            )


class DirectoryWriter:
    """A backup that is being written; `finish` makes it one."""

    def __init__(self, directory: BackupDirectory) -> None:
        self.bytes = 0
        self.incoming = directory.place / _INCOMING
        self._directory = directory
        self._before = _readable_entries(directory)
        self._new: dict[str, tuple[str, str]] = {}
        self._new_bytes = 0
        self._index_file = self.incoming / "index"
        self._index_file.touch(0o600)
        self._index = gzip.open(self._index_file, "wb", LEVEL)  # noqa: SIM115 - closed by `finish` or `__exit__`
        self._line({"format": _FORMAT})

    def __enter__(self) -> DirectoryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._index.close()

    def has(self, name: str) -> bool:
        """Whether the backup before has a member of that name, and its blob is there."""
        entry = self._before.get(name)
        return entry is not None and self._directory.blob(entry.sha256).exists()

    def before(self, name: str) -> bytes | None:
        """A small member as the backup before has it."""
        entry = self._before.get(name)
        if entry is None or entry.size > MAX_JSON_BYTES:
            return None
        try:
            with _Blob.opened(self._directory.blob(entry.sha256), entry) as stream:
                return stream.read()
        except DamagedBackup:
            return None

    def keep(
        self, name: str, mode: int = 0o600, size: int | None = None, stamp: str | None = None
    ) -> IndexEntry | None:
        """Take a member as the backup before has it. With a stamp, only if it is of that one; with none, it is known to
        be the same."""
        if not self.has(name):
            return None
        entry = self._before[name]
        if stamp is not None and (not stamp or (entry.stamp, entry.size) != (stamp, size)):
            return None
        kept = entry._replace(mode=mode)
        self._line(kept)
        return kept

    def add(self, name: str, content: BinaryIO, size: int, mode: int = 0o600, stamp: str = "") -> str:
        digest = hashlib.sha256()
        for chunk in chunks(content):
            digest.update(chunk)
        sha256 = digest.hexdigest()
        target = self._directory.blob(sha256)
        if sha256 not in self._new and not target.exists():
            content.seek(0)
            temporary = self.incoming / sha256
            # It keeps this when it is copied to where others may look.
            temporary.touch(0o600)
            with gzip.open(temporary, "wb", LEVEL) as out:
                shutil.copyfileobj(content, out, CHUNK_BYTES)
            written = temporary.stat().st_size
            self.bytes += written
            self._new_bytes += written
            self._new[sha256] = str(temporary), str(target)
            if len(self._new) >= _TOGETHER or self._new_bytes >= _TOGETHER_BYTES:
                self._name()
        self._line(IndexEntry(name, mode, size, sha256, stamp))
        return sha256

    def finish(self, taken_at: int) -> Path:
        """Give the backup its name: from now on it is one."""
        self._name()
        self._index.close()
        self.bytes += self._index_file.stat().st_size
        last = self._directory.indexes()[-1:]
        number = 1 + (int(last[0].name.partition("-")[0]) if last else 0)
        when = datetime.fromtimestamp(taken_at / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        path = self._directory.place / _BACKUPS / f"{number:06}-{when}.gz"
        name_files([(str(self._index_file), str(path))], _make_directory)
        return path

    def _name(self) -> None:
        if self._new:
            name_files(list(self._new.values()), _make_directory)
        self._new, self._new_bytes = {}, 0

    def _line(self, value: object) -> None:
        self._index.write(json.dumps(value).encode() + b"\n")


def _make_directory(directory: Path) -> None:
    directory.mkdir(exist_ok=True, mode=0o700)


def _readable_entries(directory: BackupDirectory) -> dict[str, IndexEntry]:
    """The members of the newest backup; none if they cannot be read: all is stored again then."""
    try:
        return {entry.name: entry for index in directory.indexes()[-1:] for entry in entries(index)}
    except (DamagedBackup, LedgerTooNew, EOFError, OSError, zlib.error):
        return {}


def entries(index: Path) -> Iterator[IndexEntry]:
    """The members of a backup. Raises `DamagedBackup`, or what `gzip` does, and `LedgerTooNew`."""
    with gzip.open(index, "rb") as lines:
        _check_format(_parsed(lines.readline(_MAX_LINE_BYTES)), index)
        while line := lines.readline(_MAX_LINE_BYTES):
            yield _entry(_parsed(line))


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedBackup("its index is not JSON") from error


def _check_format(header: object, index: Path) -> None:
    found = header.get("format") if isinstance(header, dict) else None
    if type(found) is not int:
        raise DamagedBackup("its index does not say what it is")
    if found > _FORMAT:
        raise LedgerTooNew(
            f"{index} has format {found}; this Ratchet knows {_FORMAT}",
            hint="upgrade this Ratchet, then restore",
        )


def _entry(value: object) -> IndexEntry:
    match value:
        case [str(name), int(mode), int(size), str(sha256), str(stamp)]:
            if size >= 0 and len(sha256) == 64 and set(sha256) <= _HEX:
                return IndexEntry(name, mode, size, sha256, stamp)
    raise DamagedBackup("its index has a line that is not a member")


class DirectoryArchive:
    """One backup of a directory."""

    def __init__(self, place: Path, index: Path) -> None:
        self.source = index
        self._directory = BackupDirectory(place)

    @contextlib.contextmanager
    def members(self) -> Iterator[MemberReader]:
        yield _DirectoryReader(self._directory, entries(self.source))


class _DirectoryReader:
    def __init__(self, directory: BackupDirectory, found: Iterator[IndexEntry]) -> None:
        self._directory = directory
        self._entries = found
        self._entry: IndexEntry | None = None

    def next(self) -> BackupMember | None:
        self._entry = next(self._entries, None)
        return None if self._entry is None else BackupMember(*self._entry[:3])

    def content(self) -> BinaryIO:
        assert self._entry is not None
        return _Blob.opened(self._directory.blob(self._entry.sha256), self._entry)

    def finish(self) -> None:
        """The index has been read to its end, where its checksum is."""


class _Blob(io.RawIOBase):
    """The content of a blob. Whether it is the one that was stored is known, and said, at its end."""

    def __init__(self, path: Path, entry: IndexEntry) -> None:
        self._path = path
        self._entry = entry
        self._at = 0
        self._digest = hashlib.sha256()
        try:
            self._file = gzip.open(path, "rb")  # noqa: SIM115 - closed by `close`
        except FileNotFoundError:
            raise DamagedBackup(f"{path} is missing, which {entry.name!r} is in") from None

    @classmethod
    def opened(cls, path: Path, entry: IndexEntry) -> BinaryIO:
        return io.BufferedReader(cls(path, entry), CHUNK_BYTES)

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # all that is given to it
        try:
            chunk = self._file.read(min(len(buffer), self._entry.size - self._at + 1))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._damaged() from error
        self._digest.update(chunk)
        self._at += len(chunk)
        if self._at > self._entry.size:
            raise self._damaged()
        if not chunk and (self._at, self._digest.hexdigest()) != (self._entry.size, self._entry.sha256):
            raise self._damaged()
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _damaged(self) -> DamagedBackup:
        return DamagedBackup(
            f"{self._path} is damaged, which {self._entry.name!r} is in (without it, the next backup stores it again)"
        )
