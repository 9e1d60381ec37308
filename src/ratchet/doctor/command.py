"""Asking a program a short question."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO

_MOST_BYTES = 64_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said. `code` is `None` when it was killed for taking too long or saying too much."""

    code: int | None
    output: str

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.output.splitlines() if line.strip()), "")


def ask(*command: str, seconds: float = 5.0) -> Answer:
    """Run `command` without input and return what it said.

    One that does not end in time is killed with its process group. Raises `OSError` when it cannot start.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    deadline = time.monotonic() + seconds
    assert process.stdout is not None
    with process.stdout as pipe:
        output, ended = _read(pipe, deadline)
        try:
            code = process.wait(max(0.0, deadline - time.monotonic())) if ended else None
        except subprocess.TimeoutExpired:
            code = None
        if code is None:
            # Its leader is not yet waited for, so the number still belongs to this group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Answer(code, output.decode(errors="replace"))


def _read(pipe: IO[bytes], deadline: float) -> tuple[bytes, bool]:
    """What comes until the end, the deadline or the limit, and whether it was the end."""
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(output) < _MOST_BYTES and (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                chunk = os.read(pipe.fileno(), 8192)
                if not chunk:
                    return output, True
                output += chunk
    return output, False
