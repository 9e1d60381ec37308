"""What happens on a node: is it fit, what does it have already, and the work itself.

A node needs Ratchet and nothing else: no ledger, no store, no key. What it works on it gets by hash, and keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import pickle
import platform
import secrets
import shutil
import socket
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from ratchet.files import sync_file_system
from ratchet.kernel import RatchetError
from ratchet.placement.work import NodeNeeds, WorkLost, content_hash

_KEPT_SECONDS = 7 * 86400.0


class NodeUnfit(Exception):
    """This node cannot do work of this kind; another may."""


class Assignment(NamedTuple):
    """An order on its way. Its `given` is unpickled only where the same Ratchet runs."""

    name: str
    function: str
    given: bytes
    contents: tuple[str, ...]
    needs: NodeNeeds
    cache: str
    streams: bool


class NodeReply(NamedTuple):
    """What came of it on a node: `done` with a pickled value, `unfit`, `lost` or `failed` with the reason."""

    outcome: str
    value: bytes = b""
    reason: str = ""
    hint: str | None = None


@dataclass(slots=True)
class NodeContext:
    """What a function that was placed has. `cache` is a directory of this machine, which other processes use too."""

    name: str
    cache: Path
    fetch: Callable[[str], bytes] = field(repr=False)
    say: Callable[[bytes], None] = field(repr=False)
    gpus: tuple[str, ...] = ()

    def read(self, sha256: str) -> bytes:
        """The content of that hash, from the cache of this machine or from where the order came from."""
        file = self.cache / "contents" / sha256
        with contextlib.suppress(OSError):
            content = file.read_bytes()
            if content_hash(content) == sha256:
                os.utime(file)
                return content
        content = self.fetch(sha256)
        if content_hash(content) != sha256:
            raise WorkLost(f"{self.name} got other content than {sha256[:12]}")
        # A cache that cannot be written, such as on a full disk, costs time and no work.
        with contextlib.suppress(OSError):
            _keep(file, content)
        return content

    def directory(self, sha256: str) -> Path:
        """What `packed_directory` made that content of. Not to be written: others use it, too."""
        place = self.cache / "directories" / sha256
        with contextlib.suppress(FileNotFoundError):
            os.utime(place)
            return place
        content = self.read(sha256)
        unfinished = place.with_name(f".{sha256}-{secrets.token_hex(4)}")
        try:
            unpack_directory(content, unfinished)
            # What is cut short by a power cut never gets its name.
            sync_file_system(unfinished)
            with contextlib.suppress(FileExistsError):
                unfinished.rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENOTEMPTY):
                raise
            if not place.exists():
                raise NodeUnfit(f"{self.name} has no room in {self.cache}: {error.strerror}") from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return place


def packed_directory(root: Path, paths: Iterable[Path] | None = None) -> bytes:
    """The files and links below `root`, or only `paths` of it with what is below them; the same for the same files."""
    found = {root} if paths is None else set(paths)
    for each in [each for each in found if each.is_dir() and not each.is_symlink()]:
        for directory, folders, names in os.walk(each):
            found.update(Path(directory, name) for name in (*folders, *names))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(found - {root}):
            entry = archive.gettarinfo(path, str(path.relative_to(root)))
            # Sockets and the like are no content; hard links are files of their own.
            if path.is_file() and not path.is_symlink():
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            elif not (path.is_dir() or path.is_symlink()):
                continue
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return out.getvalue()


def unpack_directory(content: bytes, target: Path) -> None:
    """Make the directory `target` of what `packed_directory` packed. Nothing is written through a link."""
    target.mkdir(parents=True)
    links: list[tuple[Path, str]] = []
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for entry in archive:
            path = target.joinpath(*Path(entry.name).parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            if entry.issym():
                links.append((path, entry.linkname))
            elif entry.isdir():
                path.mkdir(exist_ok=True)
            else:
                with path.open("xb") as file:
                    shutil.copyfileobj(cast("IO[bytes]", archive.extractfile(entry)), file)
                path.chmod(entry.mode)
    for path, leads in links:
        path.symlink_to(leads)


def _keep(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    try:
        beside.write_bytes(content)
        beside.rename(file)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def remove_unused(cache: Path) -> None:
    """Remove contents and directories that no work has read for a week."""
    oldest = time.time() - _KEPT_SECONDS
    for directory in (cache / "directories").glob("*"):
        with contextlib.suppress(OSError):
            if directory.stat().st_mtime < oldest:
                shutil.rmtree(directory, ignore_errors=True)
    for file in (cache / "contents").glob("*"):
        with contextlib.suppress(OSError):  # another process of this machine was quicker
            if file.stat().st_mtime < oldest:
                file.unlink()


async def perform(assignment: Assignment, node: NodeContext) -> NodeReply:
    """Do it here. What it raises becomes a reply: the classes of errors are not what travels."""
    module, _, name = assignment.function.partition(":")
    try:
        function = getattr(import_module(module), name)
        async with asyncio.timeout(assignment.needs.wall_seconds):
            value = await function(pickle.loads(assignment.given), node)
        return NodeReply("done", pickle.dumps(value))
    except NodeUnfit as unfit:
        return NodeReply("unfit", reason=str(unfit))
    except WorkLost as lost:
        return NodeReply("lost", reason=str(lost))
    except TimeoutError:
        return NodeReply("failed", reason=f"{node.name} gave up after {assignment.needs.wall_seconds:g} s")
    except RatchetError as error:
        return NodeReply("failed", reason=str(error), hint=error.hint)
    except Exception as error:  # noqa: BLE001 - a mistake of ours ends the work and not the node
        return NodeReply("failed", reason=f"{type(error).__name__}: {error}")


_loop: asyncio.AbstractEventLoop | None = None


def answers(
    packed: bytes, fetch: Callable[[str], bytes], gpus: tuple[str, ...]
) -> Iterator[bytes | NodeReply]:
    """Pieces of news while it is done, and the reply. For one thread, which always is the same in a process."""
    global _loop
    assignment: Assignment = pickle.loads(packed)
    cache = Path(assignment.cache).expanduser()
    if _loop is None:
        # Its parents of sandboxes stay warm from one piece of work to the next.
        _loop = asyncio.new_event_loop()
        asyncio.set_event_loop(_loop)
        remove_unused(cache)
    pieces: asyncio.Queue[bytes | NodeReply] = asyncio.Queue()
    say: Callable[[bytes], None] = pieces.put_nowait if assignment.streams else _unheard
    context = NodeContext(socket.gethostname(), cache, fetch, say, gpus)

    async def done() -> None:
        pieces.put_nowait(await perform(assignment, context))

    task = _loop.create_task(done())
    try:
        while True:
            piece = _loop.run_until_complete(pieces.get())
            yield piece
            if isinstance(piece, NodeReply):
                return
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            _loop.run_until_complete(task)


def _unheard(_data: bytes) -> None:
    """Nobody listens."""


async def facts(_given: None, _node: NodeContext) -> dict[str, Any]:
    """What `doctor` compares between nodes."""
    import ratchet

    return {
        "ratchet": ratchet.__version__,
        "python": platform.python_version(),
        "clock": time.time(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
