"""What is kept of a session so that a later one can go on with it: its conversation, as the program wrote it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ratchet.engines.kept import KeptSessions

PROJECT = "session"
"""The program keeps conversations by project. Ours is always this one, so that another workspace can go on with it."""

_LARGEST = 64 * 1024 * 1024


class Conversations:
    def __init__(self, kept: KeptSessions) -> None:
        self._kept = kept

    def keep(self, token: str, home: Path, hide: Callable[[str], str]) -> bool:
        """Keep the conversation of the session whose home is `home`; false if nothing was said in it."""
        content = b"".join(_belonging(_read_inside(home, _place(token))))
        if not content:
            return False
        try:
            self._kept.put(token, hide(content.decode(errors="replace")).encode())
        except (OSError, ValueError):
            # A session that ended well did so even if there is no room to go on with it.
            return False
        return True

    def bring_back(self, token: str, home: Path) -> bool:
        """Put a conversation where the program with this home looks for it; false if it is not kept any more."""
        content = self._kept.get(token)
        if content is None:
            return False
        target = home / _place(token)
        target.parent.mkdir(parents=True)
        target.write_bytes(content)
        return True


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
