"""Trying whether the sandbox of the Codex CLI works here, since Codex would go on without a word if it did not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ratchet.engines.codex.program import Program
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.supervision import Invocation, try_out

_SECONDS = 30.0
# Programs, versions and search paths with which it worked in this process. A failure is tried again each time.
_worked: set[tuple[Path, str, str, str]] = set()


async def check_sandbox(program: Program, mode: str, session: Invocation) -> None:
    """Start a command as `session` would, in the same directory with the same environment. Raises `Fault`."""
    key = (program.path, program.version, mode, session.environment["PATH"])
    if mode == "danger-full-access" or key in _worked:
        return
    argv = (str(program.path), "sandbox", "-c", f'sandbox_mode="{mode}"', "--", "true")
    finished = await try_out(replace(session, argv=argv), _SECONDS)
    if not finished.ok:
        said = finished.stderr.decode(errors="replace").strip()[-300:]
        raise Fault(
            Failure.MISSING,
            f"the sandbox of Codex does not work here: {said or finished.problem or 'it did not say why'}",
            hint="allow user namespaces and update bubblewrap; or run Ratchet in a container of its own "
            'and set engines.codex.sandbox = "danger-full-access"',
        )
    _worked.add(key)
