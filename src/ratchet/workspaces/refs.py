"""Refs: read, and moved only from where they are known to be."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError, StateChanged
from ratchet.ledger.files import NewFile, sync
from ratchet.workspaces.conversation import Conversation
from ratchet.workspaces.errors import RepositoryLocked, RepositoryUnwritable
from ratchet.workspaces.git import Git, damaged

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
            content = (self._git.directory / name).read_text(errors="replace").strip()
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
        question = _question(moves)
        try:
            with self._writer.turn():
                self._writer.say(question)
                if [self._writer.line() for _ in _DONE] != _DONE:
                    raise self._writer.ended()
        except RatchetError as error:
            raise self._explained(error, moves) from None
        self._sync_directories(moves)

    def file(self, name: str, value: str, temporary: str) -> NewFile:
        """The file that a ref is."""
        check_name(name)
        content = f"{value}\n".encode()
        return NewFile(f"{self._git.directory}/{name}", temporary, content, _MODE, _make_directories)

    def listed(self, prefixes: Sequence[str]) -> dict[str, str]:
        """Every ref below the prefixes with its hash."""
        said = self._git.run("for-each-ref", "--format=%(objectname) %(refname)", *prefixes).decode(
            errors="replace"
        )
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
                if head.read_text(errors="replace").strip() == wanted:
                    return head.parent
            except OSError:  # a worktree that is just being made or removed
                continue
        return None

    def close(self) -> None:
        self._writer.stop()

    def _sync_directories(self, names: Iterable[str]) -> None:
        """Git waits for the files of refs, not for their names."""
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
