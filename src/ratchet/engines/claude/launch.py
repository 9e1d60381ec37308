"""Starting the program of a session through the SDK, and ending it without the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

KEY_VARIABLE = "RATCHET_CLAUDE_KEY"
"""How the key travels into the sandbox. The program itself does not get this variable."""
KEY_DESCRIPTOR = 9
"""Where the program reads its key, once: no command of the session finds it in an environment or in a file."""

_HAND_OVER = f"""exec {KEY_DESCRIPTOR}<<END
${KEY_VARIABLE}
END
unset {KEY_VARIABLE}
exec "$@\""""
_PID = "pid"
_LOOK_SECONDS = 0.005
_DYING_SECONDS = 10.0


def with_key(program: Path) -> list[str]:
    """The command line of the program, to be run inside the sandbox with the key in `KEY_VARIABLE`."""
    return ["/bin/sh", "-c", _HAND_OVER, "sh", str(program)]


def write_launcher(directory: Path, argv: Sequence[str]) -> Path:
    """A script in `directory` that becomes `argv` and whatever arguments it is given: the SDK wants a single file."""
    script = directory / "launch"
    script.write_text(
        f'#!/bin/sh\necho $$ > {shlex.quote(str(directory / _PID))}\nexec {shlex.join(argv)} "$@"\n'
    )
    script.chmod(0o700)
    return script


class Leash:
    """Holds the program that a launcher started: tells when it has ended, and ends it with all that it started.

    The SDK's own way of ending it is polite, slow, and given up when the task that waits for it is cancelled.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / _PID

    async def ended(self) -> None:
        """Wait until it has started and ended."""
        pid = await self._pid()
        with contextlib.ExitStack() as handles, contextlib.suppress(ProcessLookupError):
            await _ended(_handle(pid, handles))

    async def kill(self) -> None:
        """Kill it, and wait until nothing of it is left; first for its start, if need be."""
        pid = await self._pid()
        with contextlib.ExitStack() as handles, contextlib.suppress(TimeoutError):
            dying = _strike(pid, handles)
            async with asyncio.timeout(_DYING_SECONDS):
                for handle in dying:
                    await _ended(handle)

    async def _pid(self) -> int:
        while True:
            with contextlib.suppress(FileNotFoundError, ValueError):
                return int(self._file.read_text())
            await asyncio.sleep(_LOOK_SECONDS)


def _strike(pid: int, handles: contextlib.ExitStack) -> list[int]:
    """Kill the process. Returns what then ends, last the sandbox's first process, and with it all that ran in there."""
    try:
        outer = _handle(pid, handles)
        # Only a child of ours that nobody has waited for yet: its number cannot belong to another process.
        if os.waitid(os.P_PIDFD, outer, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return []
        inner = [_handle(int(child), handles) for child in _children(pid)]
        signal.pidfd_send_signal(outer, signal.SIGKILL)
    except (ProcessLookupError, ChildProcessError):
        return []
    return [outer, *inner]


def _handle(pid: int, handles: contextlib.ExitStack) -> int:
    handle = os.pidfd_open(pid)
    handles.callback(os.close, handle)
    return handle


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


async def _ended(handle: int) -> None:
    """Wait for the end of a process."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
