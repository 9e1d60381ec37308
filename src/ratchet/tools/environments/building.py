"""Making an environment: an empty one, and the packages put into it by pip.

Installing runs code of the packages, so all of it happens in the sandbox: with the network, which it needs, and with
no file of the user but those that the variables of pip name.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from ratchet.environments import named_files, own_pip, source_variables
from ratchet.sandbox import Bounds, Broken, CannotStart, Finished, Policy, Refused, Stopped, run
from ratchet.tools.call import ToolFailed

_LINES = 8
_MEMORY = 4 * 1024**3
_OUTPUT = 4 * 1024 * 1024
_PROCESSES = 256
_OPTIONS = ("--no-input", "--no-cache-dir", "--disable-pip-version-check", "--no-warn-script-location")


async def build(directory: Path, requirements: Sequence[str], seconds: float) -> None:
    """Make the environment at `directory`, which must not exist. Raises `ToolFailed`; what it made stays there."""
    until = time.monotonic() + seconds
    scratch = directory / "tmp"
    scratch.mkdir(parents=True, mode=0o700)
    empty = [sys.executable, "-I", "-m", "venv", "--without-pip", str(directory)]
    install = [*_pip(directory), "install", *_OPTIONS, "--", *requirements]
    for argv in (empty, install):
        finished = await _run(argv, directory, max(0.1, until - time.monotonic()))
        if not finished.ok:
            raise _failed(requirements, finished, seconds)
    shutil.rmtree(scratch, ignore_errors=True)


async def _run(argv: Sequence[str], directory: Path, seconds: float) -> Finished:
    environment = _environment(os.environ, directory / "tmp")
    policy = Policy(
        network=True,
        readable=named_files(environment),
        writable=(directory,),
        environment=environment,
    )
    bounds = Bounds(
        wall_seconds=seconds,
        memory_bytes=_MEMORY,
        processes=_PROCESSES,
        output_bytes=_OUTPUT,
        file_bytes=None,
    )
    try:
        return await run(argv, cwd=directory, bounds=bounds, policy=policy)
    except (Refused, CannotStart) as error:
        raise ToolFailed(str(error), hint=error.hint, final=True) from error
    except Broken as error:
        raise ToolFailed(str(error), hint=error.hint) from error


def _pip(directory: Path) -> list[str]:
    """The pip that Python carries with it, or the one that is installed here."""
    python = str(directory / "bin" / "python")
    if (carried := own_pip(python)) is not None:
        return carried
    if find_spec("pip") is not None:
        return [sys.executable, "-I", "-m", "pip", "--python", python]
    raise ToolFailed(
        "the requirements of a tool cannot be installed: this Python has no pip",
        hint="install pip beside Ratchet: python -m pip, or the package python3-pip or python3-venv",
        final=True,
    )


def _environment(ours: Mapping[str, str], scratch: Path) -> dict[str, str]:
    own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch)}
    return own | source_variables(ours)


def _failed(requirements: Sequence[str], finished: Finished, seconds: float) -> ToolFailed:
    said = (finished.stdout + finished.stderr).decode(errors="replace")
    lines = [line for line in said.splitlines() if line.strip()][-_LINES:]
    late = finished.stopped is Stopped.WALL
    why = f"it took longer than {seconds:g} s" if late else finished.problem or "it failed"
    return ToolFailed(
        f"{', '.join(requirements)} could not be installed: {why}" + "".join(f"\n  {line}" for line in lines),
        hint="raise tools.install_seconds" if late else "mend the tool's requirements, or set PIP_INDEX_URL",
        said="\n".join(lines),
    )
