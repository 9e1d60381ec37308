"""The file of a cassette: JSON Lines that a person can read, complete or not there, and no byte of it changed.

{"cassette": 1, "engine": "codex", …}           what made it
{"request": {…}}                                 a session begins
{"event": {…}} {"tool": {…}} {"guard": {…}}      what happened, in order
{"file": {…}} {"deleted": {…}}                   what it did to the workspace
{"session": {…}} or {"failed": {…}}              what it came to
{"end": "SHA-256 of the lines of the session"}
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from ratchet.engines.engine import Capabilities
from ratchet.files import locked_directory
from ratchet.kernel import RatchetError, exact_bytes

_FILE, _PROGRAM, _LINK = "100644", "100755", "120000"
MAX_CASSETTE_BYTES = 256 * 1024 * 1024
_LONGEST_HEADER = 65_536
MODES = frozenset({_FILE, _PROGRAM, _LINK})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileState:
    """A file at one moment."""

    mode: str
    sha256: str


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A file as it is after the session; without a mode it is gone."""

    path: str
    mode: str | None = None
    content: bytes = b""


def look(workspace: Path) -> dict[str, FileState]:
    """Every file below `workspace` by its relative path. Raises `OSError` for one that cannot be read."""
    return {path: FileState(_mode(file), _sha256(file)) for path, file in _files(workspace)}


def digest(files: Mapping[str, FileState]) -> str:
    """One hash for all of them."""
    lines = "".join(f"{files[path].mode} {files[path].sha256} {path}\0" for path in sorted(files))
    return hashlib.sha256(exact_bytes(lines)).hexdigest()


def changes_since(before: Mapping[str, FileState], workspace: Path) -> list[RecordedChange]:
    """What is different now, with what is gone first: a directory may have become a file."""
    after = look(workspace)
    gone = [RecordedChange(path) for path in sorted(before.keys() - after.keys())]
    made = sorted(path for path, entry in after.items() if before.get(path) != entry)
    return gone + [RecordedChange(path, after[path].mode, _content(workspace / path)) for path in made]


def remake(workspace: Path, changes: Iterable[RecordedChange]) -> None:
    """Do the same changes again. Raises `RatchetError` for a path that leads out of the workspace, or into `.git`."""
    for change in changes:
        *parents, name = _parts(change.path)
        with _directories(workspace, parents, make=change.mode is not None) as chain:
            if chain is not None:
                _apply(change, name, chain, parents)


def _apply(change: RecordedChange, name: str, chain: list[int], parents: list[str]) -> None:
    directory = chain[-1]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    if change.mode is None:
        # Like git, leave no directory that has become empty.
        with contextlib.suppress(OSError):
            for parent, above in zip(reversed(parents), reversed(chain[:-1]), strict=True):
                os.rmdir(parent, dir_fd=above)
    elif change.mode == _LINK:
        os.symlink(change.content, os.fsencode(name), dir_fd=directory)
    else:
        mode = 0o777 if change.mode == _PROGRAM else 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, mode, dir_fd=directory), "wb") as file:
            file.write(change.content)


@contextlib.contextmanager
def _directories(workspace: Path, parents: list[str], *, make: bool) -> Iterator[list[int] | None]:
    """Open each directory on the way, never through a symbolic link; nothing if one is not there nor to be made."""
    with contextlib.ExitStack() as opened:
        chain: list[int] = []
        try:
            chain.append(_opened(opened, workspace, None, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            for parent in parents:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(parent, dir_fd=chain[-1])
                chain.append(_opened(opened, parent, chain[-1], _DIRECTORY))
        except FileNotFoundError:
            yield None
            return
        yield chain


def _opened(stack: contextlib.ExitStack, path: str | Path, directory: int | None, flags: int) -> int:
    descriptor = os.open(path, flags, dir_fd=directory)
    stack.callback(os.close, descriptor)
    return descriptor


def _parts(path: str) -> list[str]:
    pure = PurePosixPath(path)
    parts = list(pure.parts)
    if (
        not parts
        or pure.is_absolute()
        or ".." in parts
        or ".git" in (each.lower() for each in parts)
        or "\0" in path
    ):
        raise RatchetError(f"the path {path!r} is not one of a file in the workspace")
    return parts


def _files(workspace: Path) -> Iterator[tuple[str, Path]]:
    for directory, subdirectories, names in os.walk(workspace, onerror=_fail):
        # A link to a directory is a file here: what it points at may lie anywhere.
        links = [name for name in subdirectories if Path(directory, name).is_symlink()]
        subdirectories[:] = [name for name in subdirectories if name.lower() != ".git" and name not in links]
        for name in (*names, *links):
            file = Path(directory, name)
            if name.lower() != ".git" and (file.is_symlink() or file.is_file()):
                yield file.relative_to(workspace).as_posix(), file


def _fail(error: OSError) -> None:
    raise error


def _mode(file: Path) -> str:
    mode = file.lstat().st_mode
    if stat.S_ISLNK(mode):
        return _LINK
    return _PROGRAM if mode & stat.S_IXUSR else _FILE


def _sha256(file: Path) -> str:
    if file.is_symlink():
        return hashlib.sha256(os.fsencode(file.readlink())).hexdigest()
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _content(file: Path) -> bytes:
    return os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()


VERSION = 1
_STEPS = frozenset({"event", "tool", "guard"})
_ENDINGS = frozenset({"session", "failed"})

Step = tuple[str, Mapping[str, Any]]


class CassetteError(RatchetError):
    """The file is not a cassette that can be replayed."""


@dataclass(frozen=True, slots=True)
class Header:
    """What made a cassette."""

    engine: str
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class Recorded:
    """One session: what was asked, what happened, what it changed, and how it ended."""

    request: Mapping[str, Any]
    steps: tuple[Step, ...]
    changes: tuple[RecordedChange, ...]
    ending: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cassette:
    header: Header
    sessions: tuple[Recorded, ...]


@dataclass(slots=True)
class _Unfinished:
    """A session while it is read."""

    digest: Any = field(default_factory=hashlib.sha256)
    lines: list[Step] = field(default_factory=list)


def read(path: Path) -> Cassette:
    """Read it whole. Raises `FileNotFoundError`, or `CassetteError` for anything that is not as it was recorded."""
    with _bounded(path) as file:
        first, *rest = file.read(MAX_CASSETTE_BYTES).splitlines(keepends=True) or [b""]
    header = _header(path, first)
    sessions, current = [], _Unfinished()
    for number, line in enumerate(rest, 2):
        kind, value = _line(path, number, line)
        if kind != "end":
            current.lines.append((kind, value))
            current.digest.update(line)
            continue
        if value != current.digest.hexdigest():
            raise _damaged(path, f"the session that ends in line {number} was changed after it was recorded")
        sessions.append(_recorded(path, number, current.lines))
        current = _Unfinished()
    if current.lines:
        raise _damaged(path, "its last session has no end")
    return Cassette(header, tuple(sessions))


def read_header(path: Path) -> Header:
    """Only what made it. Raises `FileNotFoundError` or `CassetteError`."""
    with _bounded(path) as file:
        return _header(path, file.readline(_LONGEST_HEADER))


@contextlib.contextmanager
def _bounded(path: Path) -> Iterator[BinaryIO]:
    """The file at `path`, which others may have named: nothing but a file of bounded length is read."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise _damaged(path, "it is not a file")
        if found.st_size > MAX_CASSETTE_BYTES:
            raise _damaged(path, f"it is longer than {MAX_CASSETTE_BYTES} bytes")
        yield file


def add(path: Path, header: Header, recorded: Recorded) -> None:
    """Put a session at the end of the cassette, which is made if there is none. All of it, or nothing.

    Raises `OSError`, or `CassetteError` when what is there is of another engine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        try:
            with _bounded(path) as there:
                before = there.read(MAX_CASSETTE_BYTES)
        except FileNotFoundError:
            before = _encoded_header(header)
        else:
            check_header(path, header)
        whole = before + _encoded(recorded)
        if len(whole) > MAX_CASSETTE_BYTES:
            raise CassetteError(
                f"the cassette {path} would be longer than {MAX_CASSETTE_BYTES} bytes",
                hint="record to another file",
            )
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(whole)
                out.flush()
                os.fsync(out.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)


def check_header(path: Path, header: Header) -> None:
    """Raise `CassetteError` if a cassette is there that another engine made."""
    with contextlib.suppress(FileNotFoundError):
        there = read_header(path)
        if there.engine != header.engine:
            raise CassetteError(
                f"the cassette {path} is a recording of {there.engine}, not of {header.engine}",
                hint="record to another file",
            )


def _encoded_header(header: Header) -> bytes:
    return _json({"cassette": VERSION, "engine": header.engine, "capabilities": asdict(header.capabilities)})


def _encoded(recorded: Recorded) -> bytes:
    lines = [
        _json({"request": recorded.request}),
        *(_json({kind: value}) for kind, value in recorded.steps),
        *(_json(_change_line(each)) for each in recorded.changes),
        _json({recorded.ending: recorded.result}),
    ]
    whole = b"".join(lines)
    return whole + _json({"end": hashlib.sha256(whole).hexdigest()})


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, as in a file name that is not UTF-8
        return json.dumps(value, default=str).encode() + b"\n"


def _change_line(change: RecordedChange) -> dict[str, Any]:
    if change.mode is None:
        return {"deleted": {"path": change.path}}
    try:
        content = {"text": change.content.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(change.content).decode()}
    return {"file": {"path": change.path, "mode": change.mode, **content}}


def _line(path: Path, number: int, line: bytes) -> tuple[str, Any]:
    try:
        [(kind, value)] = json.loads(line).items()
    except (ValueError, AttributeError, RecursionError):
        raise _damaged(path, f"line {number} is not one of a cassette") from None
    return kind, value


def _header(path: Path, line: bytes) -> Header:
    try:
        document = json.loads(line)
        version = document["cassette"]
        if isinstance(version, int) and version > VERSION:
            raise CassetteError(
                f"the cassette {path} has version {version}, and this Ratchet reads up to {VERSION}",
                hint="replay it with a newer Ratchet",
            )
        return Header(str(document["engine"]), Capabilities(**document["capabilities"]))
    except (ValueError, TypeError, LookupError, RecursionError):
        raise _damaged(path, "its first line is not that of a cassette") from None


def _recorded(path: Path, number: int, lines: list[Step]) -> Recorded:
    kinds = [kind for kind, _ in lines]
    middle = lines[1:-1]
    steps = tuple(each for each in middle if each[0] in _STEPS)
    changes = tuple(_change(path, number, *each) for each in middle if each[0] not in _STEPS)
    if len(lines) < 2 or kinds[0] != "request" or kinds[-1] not in _ENDINGS:
        raise _damaged(path, f"the session that ends in line {number} is not whole")
    return Recorded(lines[0][1], steps, changes, kinds[-1], lines[-1][1])


def _change(path: Path, number: int, kind: str, value: Any) -> RecordedChange:
    match kind, value:
        case "deleted", {"path": str(file)}:
            return RecordedChange(file)
        case "file", {"path": str(file), "mode": mode, "text": str(text)} if mode in MODES:
            return RecordedChange(file, mode, text.encode())
        case "file", {"path": str(file), "mode": mode, "base64": str(text)} if mode in MODES:
            with contextlib.suppress(binascii.Error):
                return RecordedChange(file, mode, base64.b64decode(text, validate=True))
    raise _damaged(path, f"the session that ends in line {number} holds something that is not known: {kind}")


def _damaged(path: Path, why: str) -> CassetteError:
    return CassetteError(f"the cassette {path} is damaged: {why}", hint="record the session again")


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One writer at a time: each takes what is there and puts a longer one in its place."""
    with locked_directory(directory) as descriptor:
        yield
        os.fsync(descriptor)
