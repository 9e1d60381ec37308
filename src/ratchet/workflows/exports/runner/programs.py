"""Runs a program: bytes in, bytes out, within a time and a size, and nothing of its group left afterwards.

There is no sandbox here. A program sees no variables but a few harmless ones, so that keys stay with the runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.flowkit.executor import task_group

_SHOWN_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TEMP", "SYSTEMROOT")
_PIECE = 65_536
_SAID_BYTES = 65_536


class ProgramStopped(Exception):
    """It took too long or said too much."""


@dataclass(frozen=True)
class Finished:
    """`said` is the end of what it wrote to stderr."""

    exit_code: int
    stdout: bytes
    said: str
    wall_ms: float


async def run_program(
    argv: Sequence[str],
    given: bytes,
    *,
    folder: Path,
    seconds: float,
    output_bytes: int,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Raises `ProgramStopped`, and `FileNotFoundError` or `PermissionError` for a program that is not there."""
    began = time.monotonic()
    shown = {name: os.environ[name] for name in _SHOWN_VARIABLES if name in os.environ}
    async with _started(argv, folder, {**shown, **(environment or {})}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(seconds):
                # The first that raises ends the others: a flood is stopped while it is still running.
                async with task_group() as group:
                    group.create_task(_feed(process.stdin, given))
                    answer = group.create_task(_read(process.stdout, output_bytes))
                    said = group.create_task(_read_end(process.stderr))
                await process.wait()
        except TimeoutError:
            raise ProgramStopped(f"took longer than {seconds:g} s") from None
    assert process.returncode is not None
    return Finished(process.returncode, answer.result(), said.result(), (time.monotonic() - began) * 1000)


@contextlib.asynccontextmanager
async def _started(
    argv: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        _kill(process)
        # Shielded: a cancelled step still waits until its process is gone.
        await asyncio.shield(process.wait())


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


async def _feed(pipe: asyncio.StreamWriter, given: bytes) -> None:
    # A program need not read what it is given.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.write(given)
        await pipe.drain()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.close()


async def _read(pipe: asyncio.StreamReader, limit: int) -> bytes:
    found = bytearray()
    while piece := await pipe.read(_PIECE):
        found += piece
        if len(found) > limit:
            raise ProgramStopped(f"wrote more than {limit} bytes")
    return bytes(found)


async def _read_end(pipe: asyncio.StreamReader) -> str:
    found = b""
    while piece := await pipe.read(_PIECE):
        found = (found + piece)[-_SAID_BYTES:]
    return found.decode(errors="replace")
