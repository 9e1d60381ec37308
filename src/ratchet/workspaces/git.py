"""The git command, run so that nothing but its arguments can influence it; commands kept running; refs.

A repository may be hostile: a session with write access to it can plant hooks, filters, a file system monitor or a
remote whose address is a command. So git runs here without the user's configuration and environment, with hooks and
transports off, and only plumbing commands are used, which run no filters and call no external diff.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ratchet.files import NewFile, sync
from ratchet.kernel import (
    Conflict,
    Missing,
    Misuse,
    NotFound,
    RatchetError,
    StateChanged,
    decoded,
    exhaustion_in,
)
from ratchet.programs import PIPE, Ended, Process, TookTooLong, run_program, start_program
from ratchet.workspaces.errors import (
    GitFailed,
    NotARepository,
    RepositoryCorrupt,
    RepositoryLocked,
    RepositoryShallow,
    RepositoryUnwritable,
)

LEAST_GIT = (2, 31)
_SECONDS = 120.0
_LOCK_MILLISECONDS = 2000
_ABANDONED_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_FSCK = "look with `git fsck --full`, then restore the repository or clone it again"

_CONFIGURATION = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    # Added to what git waits for anyway: refs are told of by rows.
    "core.fsync": "reference",
    "core.filesRefLockTimeout": str(_LOCK_MILLISECONDS),
    "core.packedRefsTimeout": str(_LOCK_MILLISECONDS),
    "core.quotePath": "false",
    "log.showSignature": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "advice.detachedHead": "false",
}
_ENVIRONMENT = {
    "PATH": os.defpath,
    "LC_ALL": "C",
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": f"{os.devnull}/none",  # an empty one would be complained about
    "GIT_OPTIONAL_LOCKS": "0",
    # Refs are written as files here, without asking git.
    "GIT_DEFAULT_REF_FORMAT": "files",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    # A partial clone would fetch what it lacks; no transport has this name, so none is allowed.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_COUNT": str(len(_CONFIGURATION)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_CONFIGURATION)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_CONFIGURATION.values())},
}


@dataclass(frozen=True, slots=True)
class Git:
    """A git program, bound to one git directory."""

    program: str
    directory: Path

    def environment(self, **more: str) -> dict[str, str]:
        return {**_ENVIRONMENT, "GIT_DIR": str(self.directory), **more}

    def run(
        self,
        *words: str,
        input: bytes = b"",
        fine: tuple[int, ...] = (0,),
        cwd: Path | None = None,
        **environment: str,
    ) -> bytes:
        """What the command prints. Raises a typed error unless it ends with a code in `fine`."""
        done = self._finished(words, input, cwd, environment)
        if done.returncode not in fine:
            raise failure(done.stderr, self.directory, words[0])
        return done.stdout

    def asks(self, *words: str) -> bool:
        """Whether the command ends with 0 rather than 1. Raises a typed error for any other code."""
        done = self._finished(words, b"", None, {})
        if done.returncode not in (0, 1):
            raise failure(done.stderr, self.directory, words[0])
        return done.returncode == 0

    def _finished(
        self, words: tuple[str, ...], input: bytes, cwd: Path | None, environment: dict[str, str]
    ) -> Ended:
        try:
            return run_program(
                [self.program, *words],
                input,
                cwd=cwd or self.directory,
                environment=self.environment(**environment),
                seconds=_SECONDS,
            )
        except TookTooLong:
            raise GitFailed(f"git {words[0]} did not end within {_SECONDS:g} s in {self.directory}") from None
        except OSError as error:
            raise not_runnable(self, error) from error


def find_git(path: str | None = None) -> str:
    """The git program on `path` (by default the PATH). Raises `Missing` when there is none, or an old one."""
    fix = f"install git {'.'.join(map(str, LEAST_GIT))} or newer with the package manager of your system"
    program = shutil.which("git", path=path)
    if program is None:
        raise Missing("git was not found on the PATH", hint=fix)
    version = _version(program, Path(program).stat().st_mtime_ns)
    if version < LEAST_GIT:
        raise Missing(
            f"git {'.'.join(map(str, version)) or 'of unknown version'} at {program} is too old", hint=fix
        )
    return program


@functools.cache
def _version(program: str, _mtime: int) -> tuple[int, ...]:
    try:
        said = run_program([program, "--version"], environment=_ENVIRONMENT, seconds=10).stdout
    except (OSError, TookTooLong) as error:
        raise Missing(f"git at {program} cannot be run: {error}", hint="reinstall git") from error
    found = re.search(rb"(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else ()


_PLAIN = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


def run_git(directory: Path, *words: str, given: bytes = b"", **environment: str) -> Ended:
    """Git in a directory, with nothing that this user or this machine has configured. Raises `OSError`, and
    `TookTooLong`."""
    command = [find_git(), "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *words]
    return run_program(command, given, cwd=directory, environment=_PLAIN | environment, seconds=_SECONDS)


def not_runnable(git: Git, error: OSError) -> RatchetError:
    """Why a git process could not be started: the directory is gone, or the program is."""
    if not git.directory.is_dir():
        return NotARepository(
            f"the repository {git.directory} is gone", hint="restore it or name another one"
        )
    return Missing(f"git at {git.program} cannot be run: {error.strerror}", hint="reinstall git")


_LOCKED = re.compile(r"Unable to create '([^']+\.lock)'")
_UNWRITABLE = ("No space left", "Read-only file system", "Permission denied", "insufficient permission")
_CORRUPT = (
    "corrupt",
    "is empty",
    "inflate",
    "unable to unpack",
    "unable to read",
    "unable to stream",
    "bad object",
    "bad tree",
    "bad config",
    "bad signature",
    "hash mismatch",
    "does not match",
    "not a git repository",
    "broken",
    "index file smaller",
)


def failure(stderr: bytes, directory: Path, command: str) -> RatchetError:
    """The typed error that a message of git stands for. Its cause is what the machine ran out of, if it did."""
    said = decoded(stderr).strip()
    error = _failure(said, directory, command)
    error.__cause__ = exhaustion_in(said)
    return error


def _failure(said: str, directory: Path, command: str) -> RatchetError:
    lines = said.splitlines()
    first = next(
        (line for line in lines if line.startswith(("fatal: ", "error: "))),
        (lines or ["git said nothing"])[0],
    )
    lock = _LOCKED.search(said)
    if lock is not None and "File exists" in said:
        return RepositoryLocked(
            f"{lock[1]} is held by another git process, or was left by one that died",
            lock=directory / lock[1],
            hint="if no git process uses the repository, delete that file",
        )
    if any(word in said for word in _UNWRITABLE):
        return RepositoryUnwritable(
            f"git {command} cannot write in {directory}: {first}",
            hint="free some space or make the directory writable, then try again",
        )
    if "transport" in said and "not allowed" in said:
        return RepositoryShallow(
            f"{directory} is a partial clone without all files, and nothing is fetched here",
            hint="clone it again without --filter",
        )
    if any(word in said for word in _CORRUPT):
        return RepositoryCorrupt(f"the repository {directory} is damaged: {first}", hint=_FSCK)
    return GitFailed(f"git {command} failed in {directory}: {first}")


def damaged(directory: Path, what: str) -> RepositoryCorrupt:
    return RepositoryCorrupt(f"the repository {directory} is damaged: {what}", hint=_FSCK)


_CHUNK = 65536


class Conversation:
    """One git process. Everything said and read happens in a `turn`."""

    def __init__(
        self, git: Git, *words: str, cwd: Path | None = None, seconds: float = 60.0, **environment: str
    ) -> None:
        # Answers carry no names: question and answer must not mix with those of another thread.
        self._turn = threading.Lock()
        self._git = git
        self._words = words
        self._cwd = cwd or git.directory
        self._seconds = seconds
        self._environment = environment
        self._process: Process | None = None
        self._errors: IO[bytes] | None = None
        self._end: weakref.finalize[..., Conversation] | None = None
        self._pid = 0
        self._buffer = b""

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the process for questions and their whole answers. One that breaks off is ended: it is out of step."""
        with self._turn:
            try:
                yield
            except BaseException:
                self.stop()
                raise

    def say(self, data: bytes) -> None:
        """Send a question; starts the process when none runs. At most a pipe's 64 KiB before the answers are read."""
        pipe = cast(IO[bytes], self._running().stdin)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(pipe.fileno(), rest) :]
        except BrokenPipeError:
            raise self.ended() from None

    def line(self) -> bytes:
        """The next line of the answer, without its end."""
        return self.until(b"\n")

    def until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._buffer += self._more()
        found, _, self._buffer = self._buffer.partition(end)
        return found

    def exactly(self, size: int) -> bytes:
        parts, have = [self._buffer], len(self._buffer)
        while have < size:
            parts.append(self._more())
            have += len(parts[-1])
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def ended(self) -> RatchetError:
        """The process is gone: why, as a typed error. The next question starts another one."""
        said = self.complaint()
        self.stop()
        return failure(said, self._git.directory, self._words[0])

    def complaint(self) -> bytes:
        """What the process has said on its standard error so far; waits for the end of one that is ending."""
        if self._process is not None and self._errors is not None:
            with contextlib.suppress(TookTooLong):
                self._process.wait(0.2)
            self._errors.seek(0)
            return self._errors.read()
        return b""

    def stop(self) -> None:
        self._process, self._errors, self._buffer = None, None, b""
        if self._end is not None:
            self._end()

    def _running(self) -> Process:
        if self._process is not None and self._pid != os.getpid():
            self.stop()  # forked: the process belongs to the parent
        if self._process is None:
            self._errors = cast(IO[bytes], tempfile.TemporaryFile())  # noqa: SIM115 - lives as long as the process
            try:
                self._process = start_program(
                    [self._git.program, *self._words],
                    input=PIPE,
                    complaints=self._errors,
                    buffer_bytes=0,
                    cwd=self._cwd,
                    environment=self._git.environment(**self._environment),
                )
            except OSError as error:
                self._errors.close()
                self._errors = None
                raise not_runnable(self._git, error) from error
            self._pid = os.getpid()
            # Also for a repository that nobody closed, as when a task is cancelled between two of its steps.
            self._end = weakref.finalize(self, _end, self._process, self._errors, self._pid)
        return self._process

    def _more(self) -> bytes:
        process = self._process
        if process is None:
            raise GitFailed(f"git {self._words[0]} was stopped in {self._git.directory}")
        out = cast(IO[bytes], process.stdout)
        deadline = time.monotonic() + self._seconds
        poll = select.poll()
        poll.register(out, select.POLLIN)
        while not poll.poll(max(0, deadline - time.monotonic()) * 1000):
            if time.monotonic() >= deadline:
                self.stop()
                raise GitFailed(
                    f"git {self._words[0]} gave no answer for {self._seconds:g} s in {self._git.directory}",
                    hint="see whether the disk answers",
                )
        data = os.read(out.fileno(), _CHUNK)
        if not data:
            raise self.ended()
        return data


def _end(process: Process, errors: IO[bytes], pid: int) -> None:
    """End the process, unless it belongs to a parent that forked, and close our ends of its pipes."""
    if pid == os.getpid():
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, errors):
        if pipe is not None:
            pipe.close()


ABSENT = "absent"
# In the log of every ref that Ratchet moves: this is how its moves are told from those of a session.
_REASON = b"ratchet"
_LOG_LINE = 4096
_MODE = 0o644
_MOVING = ("update-ref", "--stdin", "--create-reflog", "-m", _REASON.decode())
_DONE = [b"start: ok", b"prepare: ok", b"commit: ok"]
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = re.compile(
    r"refs/(?!.*(?:\.\.|//|@\{|\.lock(?:/|$)|/\.|\.$|/$|\.(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+/[^\x00-\x20\x7f~^:?*\[\\]+"
)


class Refs:
    """Thread-safe. Moves are transactions of git itself, so other programs see all of one or nothing."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._writer = Conversation(git, *_MOVING)

    def value(self, name: str) -> str | None:
        """The hash a ref holds, or `None`."""
        check_name(name)
        try:
            content = decoded((self._git.directory / name).read_bytes()).strip()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            content = "packed"
        if _HASH.fullmatch(content):
            return content
        if content != "packed" and not content.startswith("ref: "):
            raise damaged(self._git.directory, f"{name} holds {content[:60]!r}")
        said = self._git.run("show-ref", "--verify", "--hash", name, fine=(0, 1, 128)).decode().strip()
        return said or None

    def change(self, moves: Mapping[str, tuple[str | None, str | None]]) -> None:
        """Move refs from the first hash to the second, all or none; `None` stands for absent.

        They are on disk then. Raises `StateChanged` when one is not where it was said to be, `RepositoryLocked` after a
        bounded wait.
        """
        try:
            self._ask(_question(moves))
        except RatchetError as error:
            if not (isinstance(error, RepositoryLocked) and _is_abandoned(error.lock, self._git.directory)):
                raise self._explained(error, moves) from error.__cause__
            error.lock.unlink(missing_ok=True)
            self.change(moves)
            return
        self.sync(moves)

    def _ask(self, question: bytes) -> None:
        with self._writer.turn():
            self._writer.say(question)
            if [self._writer.line() for _ in _DONE] != _DONE:
                raise self._writer.ended()

    def file(self, name: str, value: str, temporary: str) -> NewFile:
        """The file that a ref is."""
        check_name(name)
        content = f"{value}\n".encode()
        return NewFile(f"{self._git.directory}/{name}", temporary, content, _MODE, _make_directories)

    def listed(self, prefixes: Sequence[str]) -> dict[str, str]:
        """Every ref below the prefixes with its hash."""
        said = decoded(self._git.run("for-each-ref", "--format=%(objectname) %(refname)", *prefixes))
        pairs = (line.split(" ", 1) for line in said.splitlines())
        return {name: number for number, name in pairs}

    def moved_by_ratchet(self, name: str, value: str) -> bool:
        """Whether the log of a ref says that Ratchet moved it to where it is."""
        try:
            with (self._git.directory / "logs" / name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_LINE))
                last = file.read().splitlines()[-1:]
        except OSError:
            return False
        return any(line.split()[1:2] == [value.encode()] and line.endswith(b"\t" + _REASON) for line in last)

    def checked_out_at(self, name: str, *, bare: bool) -> Path | None:
        """The administration of the clone or worktree in which a branch is checked out, if any."""
        if not name.startswith("refs/heads/"):
            return None
        wanted = f"ref: {name}"
        own = [] if bare else [self._git.directory / "HEAD"]
        for head in (*own, *(self._git.directory / "worktrees").glob("*/HEAD")):
            try:
                if decoded(head.read_bytes()).strip() == wanted:
                    return head.parent
            except OSError:  # a worktree that is just being made or removed
                continue
        return None

    def close(self) -> None:
        self._writer.stop()

    def sync(self, names: Iterable[str]) -> None:
        """Put the names of refs on disk: git waits for their files only."""
        for directory in sorted({parent for name in names for parent in PurePosixPath(name).parents}):
            try:
                sync(self._git.directory / directory)
            except FileNotFoundError:  # the last ref in it was deleted
                continue
            except OSError as error:
                raise RepositoryUnwritable(
                    f"refs of {self._git.directory} could not be put on disk: {error.strerror}",
                    hint="see whether the disk is well, then try again",
                ) from error

    def _explained(
        self, error: RatchetError, moves: Mapping[str, tuple[str | None, str | None]]
    ) -> RatchetError:
        if isinstance(error, RepositoryLocked):
            return error
        for name, (before, after) in moves.items():
            current = self.value(name)
            if current != before:
                return StateChanged("ref", name, (before or ABSENT,), current or ABSENT)
            if after is not None and ("nonexistent object" in str(error) or "non-commit" in str(error)):
                return NotFound("commit", after)
            if "cannot create" in str(error):
                return Conflict(f"{name} cannot be created: {error}", hint="choose another name")
        return error


def _is_abandoned(lock: Path, directory: Path) -> bool:
    """Whether the lock of a ref was left by a process that died, or by a power cut; a new one is looked at for a while.

    Git needs it for milliseconds. One that a process of this machine may hold is not touched, nor is one in a clone
    with files: people work there as well.
    """
    if directory.name == ".git":
        return False
    deadline = time.monotonic() + _ABANDONED_SECONDS
    try:
        first = lock.stat()
        while not _is_worked_in(directory):
            if time.time() - first.st_mtime >= _ABANDONED_SECONDS or time.monotonic() >= deadline:
                return True
            time.sleep(_LOOK_SECONDS)
            found = lock.stat()
            if (found.st_ino, found.st_mtime_ns) != (first.st_ino, first.st_mtime_ns):
                break
    except FileNotFoundError:
        return True
    return False


def _is_worked_in(directory: Path) -> bool:
    """Whether a process of this machine is at work in a git directory, other than by reading its objects."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to another user
            here = (process / "cwd").readlink().is_relative_to(directory)
            if here and b"cat-file" not in (process / "cmdline").read_bytes():
                return True
    return False


def _question(moves: Mapping[str, tuple[str | None, str | None]]) -> bytes:
    updates = "".join(_update(name, before, after) for name, (before, after) in moves.items())
    return f"start\n{updates}prepare\ncommit\n".encode()


def _update(name: str, before: str | None, after: str | None) -> str:
    check_name(name)
    nothing = "0" * len(after or before or "")
    return f"update {name} {after or nothing} {before or nothing}\n"


def _make_directories(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)


def check_name(name: str) -> None:
    """Raise `Misuse` unless `name` is a full name such as refs/heads/main."""
    if not _NAME.fullmatch(name):
        raise Misuse(f"{name!r} is not the full name of a ref", hint="write it as refs/heads/NAME")
