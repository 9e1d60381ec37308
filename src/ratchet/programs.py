"""Programs of this machine that run as they are, without a sandbox: git, the programs of forges, Ratchet itself.

Each is in a process group of its own: Ctrl-C in a terminal does not end it, and it ends with all that it has started.
It reads nothing but what it is given.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
Stream = int | IO[bytes] | None
Process = subprocess.Popen[bytes]
Ended = subprocess.CompletedProcess[bytes]
TookTooLong = subprocess.TimeoutExpired


def start_program(
    command: Sequence[str | Path],
    *,
    input: Stream = DEVNULL,
    output: Stream = PIPE,
    complaints: Stream = PIPE,
    cwd: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    buffer_bytes: int = -1,
) -> Process:
    """Start it; the caller waits for its end. Its environment is ours unless one is given. Raises `OSError`."""
    return subprocess.Popen(
        command,
        stdin=input,
        stdout=output,
        stderr=complaints,
        cwd=cwd,
        env=environment,
        bufsize=buffer_bytes,
        start_new_session=True,
    )


def run_program(
    command: Sequence[str | Path],
    given: bytes = b"",
    *,
    cwd: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> Ended:
    """Run it to its end, with what it prints. Raises `OSError` when it cannot be started and `TookTooLong` when it does
    not end in `seconds`; nothing of it is left running then."""
    with start_program(command, input=PIPE, cwd=cwd, environment=environment) as process:
        try:
            printed, complained = process.communicate(given, timeout=seconds)
        except BaseException:
            end_program(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, printed, complained)


def end_program(process: Process) -> None:
    """Kill all of its group, and wait for it."""
    # Its leader is not waited for before, so the number still belongs to this group.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_in_terminal(command: Sequence[str | Path], *, output: IO[str] | None = None) -> int:
    """Let a program talk with the person at the terminal, who may interrupt it. Its exit code. Raises `OSError`."""
    return subprocess.run(command, stdout=output, check=False).returncode
