"""The packages that a tool needs: each set in a virtual environment of its own, kept while it is used."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ratchet.config.workflow_settings import Tools
from ratchet.environments import Busy, find_or_make, named_files, own_pip, source_variables
from ratchet.sandbox import Bounds, Broken, CannotStart, Finished, IsolationRefused, Policy, Stopped, run
from ratchet.sandbox.leftovers import discard
from ratchet.tools.call import ToolCallFailed

_LINES = 8
_MEMORY = 4 * 1024**3
_OUTPUT = 4 * 1024 * 1024
_PROCESSES = 256
_OPTIONS = ("--no-input", "--no-cache-dir", "--disable-pip-version-check", "--no-warn-script-location")
_MOST = 100


async def build(
    directory: Path, requirements: Sequence[str], seconds: float, constraints: Sequence[str] = ()
) -> None:
    """Make the environment at `directory`, which must not exist. Raises `ToolCallFailed`; what it made stays there.

    Packages that `constraints` name are installed in those versions, if at all.
    """
    until = time.monotonic() + seconds
    scratch = directory / "tmp"
    scratch.mkdir(parents=True, mode=0o700)
    empty = [sys.executable, "-I", "-m", "venv", "--without-pip", str(directory)]
    bounds = scratch / "constraints.txt"
    bounds.write_text("".join(f"{each}\n" for each in constraints))
    install = [*_pip(directory), "install", *_OPTIONS, "--constraint", str(bounds), "--", *requirements]
    for argv in (empty, install):
        finished = await _run(argv, directory, max(0.1, until - time.monotonic()))
        if not finished.ok:
            raise _failed(requirements, finished, seconds)
    discard(scratch)


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
    except (IsolationRefused, CannotStart) as error:
        raise ToolCallFailed(str(error), hint=error.hint, final=True) from error
    except Broken as error:
        raise ToolCallFailed(str(error), hint=error.hint) from error


def _pip(directory: Path) -> list[str]:
    """The pip that Python carries with it, or the one that is installed here."""
    python = str(directory / "bin" / "python")
    if (carried := own_pip(python)) is not None:
        return carried
    if find_spec("pip") is not None:
        return [sys.executable, "-I", "-m", "pip", "--python", python]
    raise ToolCallFailed(
        "the requirements of a tool cannot be installed: this Python has no pip",
        hint="install pip beside Ratchet: python -m pip, or the package python3-pip or python3-venv",
        final=True,
    )


def _environment(ours: Mapping[str, str], scratch: Path) -> dict[str, str]:
    own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch)}
    return own | source_variables(ours)


def _failed(requirements: Sequence[str], finished: Finished, seconds: float) -> ToolCallFailed:
    said = (finished.stdout + finished.stderr).decode(errors="replace")
    lines = [line for line in said.splitlines() if line.strip()][-_LINES:]
    late = finished.stopped is Stopped.WALL
    why = f"it took longer than {seconds:g} s" if late else finished.problem or "it failed"
    return ToolCallFailed(
        f"{', '.join(requirements)} could not be installed: {why}" + "".join(f"\n  {line}" for line in lines),
        hint="raise tools.install_seconds" if late else "fix the tool's requirements, or set PIP_INDEX_URL",
        said="\n".join(lines),
    )


def read_requirements(given: Iterable[str]) -> tuple[str, ...]:
    """The requirements in one spelling and one order. Raises `ToolCallFailed` for what is not a plain requirement."""
    read = sorted({_read(each) for each in given})
    if len(read) > _MOST:
        raise ToolCallFailed(f"a tool cannot have {len(read)} requirements, at most {_MOST}", final=True)
    return tuple(read)


def _read(text: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise _refused(text, reason) from None
    if requirement.url is not None:
        raise _refused(text, "it names where the package is to come from")
    requirement.name = canonicalize_name(requirement.name)
    return str(requirement)


def _refused(text: str, reason: str) -> ToolCallFailed:
    return ToolCallFailed(
        f"the requirement {text[:200]!r} cannot be installed: {reason}",
        hint="name a package and perhaps its versions, such as 'rich>=13,<15'; indexes are set by PIP_INDEX_URL",
        final=True,
    )


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    directory: Path

    @property
    def programs(self) -> Path:
        return self.directory / "bin"

    @property
    def python(self) -> Path:
        return self.programs / "python"


async def environment_for(
    requirements: Sequence[str], home: Path, settings: Tools, constraints: Sequence[str] = ()
) -> ToolEnvironment:
    """The environment that has `requirements` installed, within `constraints`, made now if there is none yet.

    Raises `ToolCallFailed` for requirements that cannot be installed, with the last words of the installer.
    """
    wanted = read_requirements(requirements)

    async def make(directory: Path) -> None:
        await build(directory, wanted, settings.install_seconds, constraints)

    try:
        directory = await find_or_make(
            _root(home) / _name((*wanted, *constraints)),
            make,
            seconds=settings.install_seconds,
            keep_days=settings.environment_days,
        )
    except Busy as busy:
        raise ToolCallFailed(str(busy), hint="wait for it, or raise tools.install_seconds") from busy
    except OSError as error:
        raise ToolCallFailed(
            f"no environment can be made for {', '.join(wanted)}: {error}",
            hint="free some space and check the rights of Ratchet's home, then try again",
        ) from error
    return ToolEnvironment(directory)


def _root(home: Path) -> Path:
    return home.resolve() / "tools" / "environments"


def _name(requirements: Sequence[str]) -> str:
    """The same for the same packages on the same Python."""
    facts = [platform.python_implementation(), platform.python_version(), platform.machine(), sys.base_prefix]
    return hashlib.sha256(json.dumps([*facts, *requirements]).encode()).hexdigest()[:32]
