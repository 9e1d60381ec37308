"""The last lines of what a version's servers logged or printed.

An agent can write into the directory of its logs, and is not trusted: no link is followed, nothing but a plain file is
read, and of that no more than a bounded end.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.agents.contract import LOGS, Role, place_of
from ratchet.agents.versions import find_version
from ratchet.kernel import decoded
from ratchet.ledger.agents import get_agent

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

MOST_LINES = 10_000
_MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class AgentLog:
    """What one server of one version has logged, or printed past its log, as a traceback is."""

    agent: str
    commit: str
    role: Role
    printed: bool
    directory: Path

    @property
    def file(self) -> str:
        return f"{self.role}.out" if self.printed else f"{self.role}.log"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log as text. `offset` is where reading continues, in the file that `inode` names.

    `is_cut` says that there was more before it.
    """

    lines: tuple[str, ...]
    is_cut: bool = False
    offset: int = 0
    inode: int | None = None


def find_log(
    tx: Transaction, home: Path, name: str, role: Role, version: str | None = None, *, printed: bool = False
) -> AgentLog:
    """The log of a version, of the current one if none is named. Raises `NotFound`."""
    found = find_version(tx, get_agent(tx, name), version or "current")
    return AgentLog(name, found.commit, role, printed, place_of(home, name).version(found.commit))


def tail(log: AgentLog, lines: int) -> LogEnd:
    """The last lines of a log; none when nothing was logged yet."""
    with _opened(log) as descriptor:
        if descriptor is None:
            return LogEnd(())
        facts = os.fstat(descriptor)
        begin = max(0, facts.st_size - _MOST_BYTES)
        content = os.pread(descriptor, _MOST_BYTES, begin)
    found = _text(content[content.find(b"\n") + 1 :] if begin else content)
    kept = found[-min(lines, MOST_LINES) :] if lines else []
    return LogEnd(
        tuple(kept),
        is_cut=begin > 0 or len(kept) < len(found),
        offset=begin + len(content),
        inode=facts.st_ino,
    )


def after(log: AgentLog, end: LogEnd) -> LogEnd:
    """What was logged since `end` was read; from its beginning if the file is another one or was cut short."""
    with _opened(log) as descriptor:
        if descriptor is None:
            return LogEnd((), offset=0)
        facts = os.fstat(descriptor)
        same = facts.st_ino == end.inode and facts.st_size >= end.offset
        offset = end.offset if same else 0
        content = os.pread(descriptor, _MOST_BYTES, offset)
    # A line that is still being written is left for the next time, unless it is longer than what is read at once.
    whole = content if len(content) == _MOST_BYTES else content[: content.rfind(b"\n") + 1]
    return LogEnd(tuple(_text(whole)), offset=offset + len(whole), inode=facts.st_ino)


@contextlib.contextmanager
def _opened(log: AgentLog) -> Iterator[int | None]:
    """The log file, opened so that neither a link nor a pipe in its place can lead astray or block."""
    plain = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.ExitStack() as last:
        try:
            folder = os.open(log.directory / LOGS, plain | os.O_DIRECTORY)
            last.callback(os.close, folder)
            descriptor = os.open(log.file, plain, dir_fd=folder)
            last.callback(os.close, descriptor)
        except OSError:
            # Absent, a link or a directory: there is no log to show.
            yield None
            return
        yield descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def _text(content: bytes) -> list[str]:
    return decoded(content).splitlines()
