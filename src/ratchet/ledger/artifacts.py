"""Artifacts: outputs, transcripts and reports, found by the hash of their content.

The content of a small one is in the database, in the transaction that tells of it. A large one is a file, complete and
on disk before its row says that it exists, and equal contents share one file. The rows say who has it under which name;
a file that no row names is garbage once it is older than the grace period.

With a bucket the large ones are there, for every machine, and the files are what this machine has at hand of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import sqlalchemy as sa

from ratchet.files import name_files, sync
from ratchet.kernel import LedgerCorrupt, LedgerUnavailable, NotFound
from ratchet.ledger.tables import artifact_contents, artifacts

if TYPE_CHECKING:
    from ratchet.ledger.bucket import Bucket
    from ratchet.ledger.transaction import Transaction

PACK = "application/x-git-pack"
"""What a commit adds to the repository of its run: no output, so it is not listed among them."""

INLINE_BYTES = 64 * 1024
"""What is larger is a file."""
_CHUNK = 1024 * 1024
# Held by whoever puts a content into a bucket until its row is committed, and alone by whoever deletes one.
_COLLECTING = "artifacts in a bucket"
# Built once: building a statement takes longer than running it.
_INSERT = sa.insert(artifacts).returning(artifacts.c.id)
_INSERT_CONTENT = sa.insert(artifact_contents)
_CONTENT = (
    sa.select(artifact_contents.c.content)
    .join(artifacts, artifacts.c.id == artifact_contents.c.artifact_id)
    .where(artifacts.c.sha256 == sa.bindparam("wanted"))
    .limit(1)
)

Begin = Callable[[], contextlib.AbstractContextManager["Transaction"]]
"""Begins a transaction that reads."""


@dataclass(frozen=True, slots=True)
class Artifact:
    id: int
    sha256: str
    size: int
    name: str
    media_type: str
    run_id: int | None
    attempt_id: int | None
    pinned: bool
    created_at: int


class ArtifactStore:
    """What the ledger that `begin` reads has, and files at `root/sha256/ab/cdef…`. Several processes may use one."""

    def __init__(self, root: Path, begin: Begin, bucket: Bucket | None = None) -> None:
        self.root = root
        self.bucket = bucket
        self._begin = begin

    @property
    def travels(self) -> bool:
        """Whether machines may share this and the database, and nothing else."""
        return self.bucket is not None

    def put(
        self,
        tx: Transaction,
        content: bytes | BinaryIO,
        *,
        name: str,
        media_type: str = "application/octet-stream",
        run_id: int | None = None,
        attempt_id: int | None = None,
        pinned: bool = False,
    ) -> Artifact:
        """Keep `content` (bytes, or a file to read to its end) and record it in `tx`, at whose end it can be read."""
        start, rest = (
            (content, None) if isinstance(content, bytes) else (content.read(INLINE_BYTES + 1), content)
        )
        small = len(start) <= INLINE_BYTES
        if small:
            sha256, size = hashlib.sha256(start).hexdigest(), len(start)
        else:
            if self.bucket is not None:
                tx.share_key(_COLLECTING)
            with self.held():
                sha256, size = self.keep(start if rest is None else itertools.chain([start], _chunks(rest)))
        row: dict[str, Any] = {
            "sha256": sha256,
            "size": size,
            "name": name,
            "media_type": media_type,
            "run_id": run_id,
            "attempt_id": attempt_id,
            "pinned": pinned,
            "created_at": tx.now,
        }
        number = tx.connection.execute(_INSERT, row).scalar_one()
        if small:
            tx.connection.execute(_INSERT_CONTENT, {"artifact_id": number, "content": start})
        return Artifact(id=number, **row)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the collector out: it sees a file and its age either before or after. Writers share the hold."""
        with self._locked(fcntl.LOCK_SH):
            yield

    def read(self, sha256: str) -> bytes:
        """The content, checked against its hash. Raises `NotFound` or `LedgerCorrupt`."""
        with self.open(sha256) as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != sha256 and self.bucket is not None:
            content = self._fetched(sha256).read_bytes()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise LedgerCorrupt(
                f"artifact {sha256} does not match its hash",
                hint="restore it from a backup: `ratchet ledger restore`",
            )
        return content

    def open(self, sha256: str) -> BinaryIO:
        """The content as a file to read, wherever it is. Raises `NotFound`."""
        self.path(sha256)
        with self._begin() as tx:
            content = tx.connection.execute(_CONTENT, {"wanted": sha256}).scalar()
        return io.BytesIO(content) if content is not None else self.open_large(sha256)

    def open_large(self, sha256: str) -> io.BufferedReader:
        """The content of a large one. Raises `NotFound`."""
        path = self.path(sha256)
        try:
            return path.open("rb")
        except FileNotFoundError:
            if self.bucket is None:
                raise NotFound("artifact", sha256) from None
        return self._fetched(sha256).open("rb")

    def digest(self, sha256: str) -> tuple[str, int]:
        """The hash and the size of a large one as it really is where it is kept. Raises `NotFound`."""
        if self.bucket is not None:
            return self.bucket.digest(sha256)
        with self.open_large(sha256) as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()

    def path(self, sha256: str) -> Path:
        """Where the content is if it is large, or was put by a Ratchet that kept small ones as files, too."""
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise NotFound("artifact", sha256)
        return Path(self._file(sha256))

    def hashes(self) -> Iterator[str]:
        """Of every large one that is kept."""
        if self.bucket is not None:
            return (each.sha256 for each in self.bucket.objects())
        return (sha256 for sha256, _ in self.stored())

    def stored(self) -> Iterator[tuple[str, Path]]:
        """Every file that is here with its hash."""
        for directory in sorted((self.root / "sha256").glob("??")):
            for file in sorted(directory.iterdir()):
                yield directory.name + file.name, file

    def remove_unnamed(self, named: Callable[[str], bool], *, grace_seconds: float) -> tuple[int, int]:
        """Delete files that nobody names, older than the grace period; how many, and their bytes.

        Writers are kept out only while a file that looks like garbage is looked at again and deleted: looking through
        a large store takes long, and a writer that waits holds up the ledger.

        With a bucket that is done there, and of the files here all that are older are deleted.
        """
        files = size = 0
        oldest = time.time() - grace_seconds
        if self.bucket is not None:
            files, size = self._remove_objects(self.bucket, named, oldest)
            named = _never
        for sha256, file in self.stored():
            if _older(file, oldest) and not named(sha256):
                with self._locked(fcntl.LOCK_EX):
                    if _older(file, oldest) and not named(sha256):
                        size += file.stat().st_size
                        file.unlink()
                        files += 1
        with self._locked(fcntl.LOCK_EX):
            for leftover in self._incoming().iterdir():
                if _older(leftover, oldest):
                    leftover.unlink()
        # Of a Ratchet that kept a journal of small files.
        shutil.rmtree(self.root / "journal", ignore_errors=True)
        return files, size

    def _remove_objects(self, bucket: Bucket, named: Callable[[str], bool], oldest: float) -> tuple[int, int]:
        files = size = 0
        for each in bucket.objects():
            if each.modified.timestamp() < oldest and not named(each.sha256):
                # Not waited for: others would wait behind this, and it for them. The next collection is soon enough.
                with self._begin() as tx:
                    if tx.try_lock_key(_COLLECTING) and not named(each.sha256):
                        bucket.remove(each.sha256)
                        files, size = files + 1, size + each.size
        return files, size

    def keep(self, content: bytes | Iterable[bytes], *, renew: bool = False) -> tuple[str, int]:
        """Write `content` to a file under its hash; the hash and the size. Only while `held`, and soon named by a row.

        A file of that hash which is there already is trusted, unless its size is wrong or `renew` replaces it. It is on
        disk when this returns, and in the bucket if there is one.
        """
        try:
            sha256, size = self._kept(content, renew=renew)
        except OSError as error:
            raise LedgerUnavailable(
                f"an artifact could not be written to {self.root}: {error}",
                hint="free some space or make the directory writable, then try again",
            ) from error
        if self.bucket is not None:
            self.bucket.put(sha256, self.path(sha256), size, renew=renew)
        return sha256, size

    def _fetched(self, sha256: str) -> Path:
        """The file of a content of the bucket, with just that in it."""
        assert self.bucket is not None
        descriptor, temporary = tempfile.mkstemp(dir=self._incoming())
        os.close(descriptor)
        try:
            self.bucket.fetch(sha256, Path(temporary))
            name_files([(temporary, self._file(sha256))], _make_directory)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return self.path(sha256)

    def _kept(self, content: bytes | Iterable[bytes], *, renew: bool) -> tuple[str, int]:
        if isinstance(content, bytes) and not renew:
            known = hashlib.sha256(content).hexdigest()
            if self._renewed(known, len(content)):
                return known, len(content)
        descriptor, temporary = tempfile.mkstemp(dir=self._incoming())
        try:
            with os.fdopen(descriptor, "wb") as out:
                digest = hashlib.sha256()
                for chunk in [content] if isinstance(content, bytes) else content:
                    digest.update(chunk)
                    out.write(chunk)
                size = out.tell()
            sha256 = digest.hexdigest()
            if not renew and self._renewed(sha256, size):
                Path(temporary).unlink()
            else:
                name_files([(temporary, self._file(sha256))], _make_directory)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return sha256, size

    def _renewed(self, sha256: str, size: int) -> bool:
        """Whether the content is there already; its file is young again then, so that the collector lets it be."""
        file = self._file(sha256)
        try:
            if os.stat(file).st_size != size:  # noqa: PTH116 - a Path costs more than the call
                return False
            os.utime(file)
        except FileNotFoundError:
            return False
        # Another process may have named it this very moment.
        sync(Path(file).parent)
        return True

    def _incoming(self) -> Path:
        incoming = self.root / "incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        return incoming

    def _lock_file(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(f"{self.root}/lock", flags, 0o644)
        except FileNotFoundError:
            _make_directory(self.root)
            # What is stored below it is on disk only with its own name.
            sync(self.root.parent)
            return os.open(f"{self.root}/lock", flags, 0o644)

    def _file(self, sha256: str) -> str:
        return f"{self.root}/sha256/{sha256[:2]}/{sha256[2:]}"

    @contextlib.contextmanager
    def _locked(self, mode: int) -> Iterator[None]:
        try:
            lock = self._lock_file()
        except OSError as error:
            raise LedgerUnavailable(f"the artifact store {self.root} cannot be used: {error}") from error
        try:
            fcntl.flock(lock, mode)
            yield
        finally:
            os.close(lock)


def of_attempt(tx: Transaction, attempt_id: int) -> list[Artifact]:
    return _listed(tx, artifacts.c.attempt_id == attempt_id)


def of_attempts(tx: Transaction, attempt_ids: Sequence[int]) -> list[Artifact]:
    """Those of several attempts, oldest first."""
    return _listed(tx, artifacts.c.attempt_id.in_(attempt_ids)) if attempt_ids else []


def of_run(tx: Transaction, run_id: int) -> list[Artifact]:
    return _listed(tx, artifacts.c.run_id == run_id)


def first_named(tx: Transaction, run_id: int, name: str) -> Artifact | None:
    """The oldest artifact of a run by that name."""
    query = sa.select(artifacts).where(artifacts.c.run_id == run_id, artifacts.c.name == name)
    row = tx.connection.execute(query.order_by(artifacts.c.id).limit(1)).mappings().first()
    return None if row is None else Artifact(**row)


def latest(
    tx: Transaction,
    *,
    run_id: int | None = None,
    attempt_id: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Artifact]:
    """The newest artifacts of a run or an attempt, newest first, below the number `before`."""
    wanted = {"run_id": run_id, "attempt_id": attempt_id}
    query = sa.select(artifacts).where(
        artifacts.c.media_type != PACK,
        *(artifacts.c[name] == value for name, value in wanted.items() if value is not None),
    )
    if before is not None:
        query = query.where(artifacts.c.id < before)
    query = query.order_by(artifacts.c.id.desc()).limit(limit)
    return [Artifact(**row) for row in tx.connection.execute(query).mappings()]


def _listed(tx: Transaction, condition: sa.ColumnElement[bool]) -> list[Artifact]:
    query = sa.select(artifacts).where(condition).order_by(artifacts.c.id)
    return [Artifact(**row) for row in tx.connection.execute(query).mappings()]


def _never(_sha256: str) -> bool:
    return False


def _older(file: Path, moment: float) -> bool:
    try:
        return file.stat().st_mtime < moment
    except FileNotFoundError:  # another collector was here
        return False


def _chunks(content: BinaryIO) -> Iterator[bytes]:
    while chunk := content.read(_CHUNK):
        yield chunk


def _make_directory(directory: Path) -> None:
    """Make it, and its parents so that they outlast a power cut. Whoever names a file in it sees to that for itself."""
    if not directory.parent.exists():
        _make_directory(directory.parent)
        sync(directory.parent.parent)
    directory.mkdir(exist_ok=True)
