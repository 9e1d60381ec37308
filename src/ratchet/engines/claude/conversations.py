"""What is kept of a session so that a later one can go on with it: its conversation, as the program wrote it.

One directory for each day: what is too old goes as whole directories, and a conversation is looked for in few of them.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

PROJECT = "session"
"""The program keeps conversations by project. Ours is always this one, so that another workspace can go on with it."""

_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDING = ".jsonl.gz"
_LARGEST = 64 * 1024 * 1024


def _today() -> date:
    return datetime.now(UTC).date()


class Conversations:
    def __init__(self, directory: Path, days: int, *, today: Callable[[], date] = _today) -> None:
        self.directory = directory
        self._days = days
        self._today = today

    def keep(self, token: str, home: Path, hide: Callable[[str], str]) -> bool:
        """Keep the conversation of the session whose home is `home`; false if nothing was said in it."""
        content = b"".join(_belonging(_read_inside(home, _place(token))))
        if not content:
            return False
        try:
            self._write(token, hide(content.decode(errors="replace")).encode())
        except OSError:
            # A session that ended well did so even if there is no room to go on with it.
            return False
        for day, directory in self._kept():
            if day < self._today() - timedelta(days=self._days):
                shutil.rmtree(directory, ignore_errors=True)
        return True

    def _write(self, token: str, content: bytes) -> None:
        target = self.directory / self._today().isoformat() / (token + _ENDING)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Beside it and renamed: a process that dies here leaves no half conversation.
        descriptor, temporary = tempfile.mkstemp(dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(gzip.compress(content, 1))
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def bring_back(self, token: str, home: Path) -> bool:
        """Put a conversation where the program with this home looks for it; false if it is not kept any more."""
        # The token comes from outside and becomes a path.
        if not _TOKEN.fullmatch(token):
            return False
        for _, directory in self._kept():
            try:
                content = gzip.decompress((directory / (token + _ENDING)).read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, EOFError, zlib.error):  # damaged
                return False
            target = home / _place(token)
            target.parent.mkdir(parents=True)
            target.write_bytes(content)
            return True
        return False

    def _kept(self) -> list[tuple[date, Path]]:
        """Every day with what was kept on it, the latest first."""
        found = []
        for path in self.directory.glob("????-??-??"):
            try:
                found.append((date.fromisoformat(path.name), path))
            except ValueError:
                continue  # not ours
        return sorted(found, reverse=True)


def _place(token: str) -> Path:
    return Path("projects", PROJECT, f"{token}.jsonl")


def _belonging(content: bytes) -> Iterator[bytes]:
    """The lines of the conversation itself that are whole.

    The cost so far is left out: with it the program would count the money of the old session into the bill and the
    budget of the one that goes on with it.
    """
    for line in content.splitlines(keepends=True):
        try:
            if json.loads(line)["type"] != "cost-state":
                yield line
        except (ValueError, KeyError, TypeError):
            continue


def _read_inside(top: Path, path: Path) -> bytes:
    """What is at `path` below `top`, where commands of the session could write: only a plain file counts."""
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        *directories, name = path.parts
        for part in directories:
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        # Not blocking, since it could be a pipe.
        inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
        with os.fdopen(inner, "rb") as file:
            found = os.fstat(inner)
            return file.read() if stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
