"""The descriptors of one run: our ends, and those that are given away."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
import weakref

from ratchet.sandbox.errors import Broken

_CROWDED = {errno.EMFILE, errno.ENFILE}
_PATIENCE_SECONDS, _PAUSE_SECONDS = 30.0, 0.01

# Ends that only this process may hold: their closing is how the other side knows that it died.
_ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def socket_pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """Our end and theirs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    _ours.add(ours)
    return ours, theirs


def close_all() -> None:
    for each in list(_ours):
        each.close()


class Wiring:
    """A line over which the run is ended and reported, and pipes for its output and, if wanted, its input."""

    def __init__(self, *, with_input: bool) -> None:
        self._open: list[int] = []
        self._given: list[int] = []
        self.line, self._their_line = socket_pair(socket.SOCK_STREAM)
        try:
            given_input = [self._pipe(ours=1)] if with_input else []
            self.stdout, self.stderr = self._pipe(ours=0), self._pipe(ours=0)
            self.stdin = given_input[0] if given_input else None
        except OSError:
            self.close()
            raise

    @property
    def theirs(self) -> list[int]:
        """What the run gets: stdin if there is one, stdout, stderr, line."""
        return [*self._given, self._their_line.fileno()]

    def let_go(self) -> None:
        """Close what was given away, or is no longer to be."""
        self._their_line.close()
        while self._given:
            os.close(self._given.pop())

    def close(self) -> None:
        """Close everything, when there will be no run."""
        self.let_go()
        self.line.close()
        while self._open:
            os.close(self._open.pop())

    def _pipe(self, *, ours: int) -> int:
        ends = os.pipe2(os.O_CLOEXEC)
        self._open.append(ends[ours])
        self._given.append(ends[1 - ours])
        return ends[ours]


async def new_wiring(*, with_input: bool) -> Wiring:
    """Wiring for a run; waits while this process has as many descriptors open as it may."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return Wiring(with_input=with_input)
        except OSError as error:
            if error.errno not in _CROWDED or time.monotonic() > deadline:
                raise Broken(
                    f"no descriptors for another run: {error.strerror}",
                    hint="run fewer at once, or raise `ulimit -n`",
                ) from error
        await asyncio.sleep(_PAUSE_SECONDS)
