"""The members of a backup, one after the other: here in one compressed file, in `backup_directory` as many.

What is read may have been cut off, damaged, or made by an attacker: sizes are claims, and whatever is wrong is
`DamagedBackup`.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from ratchet.kernel import LedgerTooNew

# Room for millions of rows in parts; a real one is a thousand times smaller.
MAX_JSON_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
# Rows shrink well at any level, artifacts seldom do; more effort would only take longer.
LEVEL = 3
# After the last member: the end of a tar and its padding.
_MAX_TAIL_BYTES = 1024 * 1024


class DamagedBackup(Exception):
    """Something in a backup is not as it must be."""


class BackupMember(NamedTuple):
    name: str
    mode: int
    size: int


class KeptMember(Protocol):
    """A member that the backup before had already."""

    @property
    def size(self) -> int: ...

    @property
    def sha256(self) -> str: ...


class MemberWriter(Protocol):
    """Takes the members of a backup in their order."""

    def add(self, name: str, content: BinaryIO, size: int, mode: int = 0o600, stamp: str = "") -> str:
        """Add what can be read from the beginning of `content`; its hash."""

    def keep(
        self, name: str, mode: int = 0o600, size: int | None = None, stamp: str | None = None
    ) -> KeptMember | None:
        """Take a member as the backup before has it. With a stamp, only if it is of that one; with none, it is known to
        be the same."""

    def has(self, name: str) -> bool:
        """Whether the backup before has a member of that name."""

    def before(self, name: str) -> bytes | None:
        """A small member as the backup before has it."""


class MemberReader(Protocol):
    """Gives the members of a backup in their order."""

    def next(self) -> BackupMember | None: ...

    def content(self) -> BinaryIO:
        """What is in the member that `next` gave."""

    def finish(self) -> None:
        """Look at what comes after the last member."""


class Archive(Protocol):
    """A backup that can be read from its beginning, as often as it is wanted. `source` is its name in messages."""

    source: Path

    def members(self) -> contextlib.AbstractContextManager[MemberReader]: ...


class TarWriter:
    """A tar, packed by gzip, in an open file."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    @classmethod
    @contextlib.contextmanager
    def opened(cls, out: BinaryIO) -> Iterator[TarWriter]:
        with (
            gzip.GzipFile(fileobj=out, mode="wb", compresslevel=LEVEL) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            yield cls(tar)

    def add(self, name: str, content: BinaryIO, size: int, mode: int = 0o600, stamp: str = "") -> str:
        member = tarfile.TarInfo(name)
        member.size = size
        member.mode = mode
        read = _Hashed(content)
        self._tar.addfile(member, read)
        self._tar.members = []  # type: ignore[attr-defined]  # else it remembers every member
        return read.hexdigest()

    def keep(
        self, name: str, mode: int = 0o600, size: int | None = None, stamp: str | None = None
    ) -> KeptMember | None:
        return None

    def has(self, name: str) -> bool:
        return False

    def before(self, name: str) -> bytes | None:
        return None


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


class TarArchive:
    """A backup in one open file."""

    def __init__(self, file: BinaryIO, source: Path) -> None:
        self.source = source
        self._file = file

    @contextlib.contextmanager
    def members(self) -> Iterator[MemberReader]:
        self._file.seek(0)
        with (
            _Careful(fileobj=self._file, mode="rb") as zipped,
            tarfile.open(fileobj=zipped, mode="r:") as tar,
        ):
            try:
                yield _TarReader(zipped, tar)
            except LedgerTooNew:
                # Unless its versions are damaged: the checksum is at the end.
                for _ in chunks(zipped):
                    pass
                raise


class _TarReader:
    def __init__(self, zipped: gzip.GzipFile, tar: tarfile.TarFile) -> None:
        self._zipped = zipped
        self._tar = tar
        self._member: tarfile.TarInfo | None = None

    def next(self) -> BackupMember | None:
        member = self._member = self._tar.next()
        self._tar.members = []  # type: ignore[attr-defined]  # else it remembers every member
        if member is None:
            return None
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0:
            raise DamagedBackup(f"{member.name!r} is not a plain file")
        return BackupMember(member.name, member.mode, member.size)

    def content(self) -> BinaryIO:
        assert self._member is not None
        stream = self._tar.extractfile(self._member)
        assert stream is not None
        return stream  # type: ignore[return-value]

    def finish(self) -> None:
        """Read to the end, where the checksum is; only padding may be there."""
        tail = self._zipped.read(_MAX_TAIL_BYTES + 1)
        if len(tail) > _MAX_TAIL_BYTES or tail.strip(b"\0"):
            raise DamagedBackup("there is something after its end")


class _Careful(gzip.GzipFile):
    """The unpacked bytes, never many at once: a header may claim any size."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MAX_JSON_BYTES:
            raise DamagedBackup(f"a header claims {size} bytes")
        return super().read(size)


def chunks(stream: BinaryIO | gzip.GzipFile) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk
