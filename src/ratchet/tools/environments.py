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
from ratchet.extras import find_uv
from ratchet.files import discard
from ratchet.kernel import decoded
from ratchet.sandbox import Bounds, Broken, CannotStart, Finished, IsolationRefused, Policy, Stopped, run
from ratchet.tools.call import ToolCallFailed

_LINES = 8
_MEMORY = 4 * 1024**3
_OUTPUT = 4 * 1024 * 1024
_PROCESSES = 256
_OPTIONS = ("--no-input", "--no-cache-dir", "--disable-pip-version-check", "--no-warn-script-location")
# The packages are only read later, so that what Python compiles could not be kept then.
_UV_OPTIONS = ("--compile-bytecode", "--no-cache", "--no-config", "--no-progress", "--color=never")
# What uv calls the sources of pip that it knows, and what makes a machine one for pip alone.
_AS_UV = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
_PIP_ALONE = (
    *(
        "PIP_CONFIG_FILE",
        "PIP_NO_INDEX",
        "PIP_TRUSTED_HOST",
        "PIP_CLIENT_CERT",
        "PIP_PROXY",
        "PIP_CONSTRAINT",
    ),
    *("PIP_ONLY_BINARY", "PIP_PREFER_BINARY"),
)
_MOST = 100


async def build(
    directory: Path, requirements: Sequence[str], seconds: float, constraints: Sequence[str] = ()
) -> None:
    """Make the environment at `directory`, which must not exist. Raises `ToolCallFailed`; what it made stays there.

    Packages that `constraints` name are installed in those versions, if at all. uv does it where there is one, since it
    is much faster, and pip where there is none or where uv could not.
    """
    until = time.monotonic() + seconds
    scratch = directory / "tmp"
    scratch.mkdir(parents=True, mode=0o700)
    empty = [sys.executable, "-I", "-m", "venv", "--without-pip", str(directory)]
    bounds = scratch / "constraints.txt"
    bounds.write_text("".join(f"{each}\n" for each in constraints))
    wanted = ("--constraint", str(bounds), "--", *requirements)
    made = await _run(empty, directory, seconds)
    if not made.ok:
        raise _failed(requirements, made, seconds)
    uv = _uv(os.environ)
    if uv is not None:
        python = str(directory / "bin" / "python")
        install = [uv, "pip", "install", *_UV_OPTIONS, "--python", python, *wanted]
        finished = await _run(install, directory, max(0.1, until - time.monotonic()), uv=Path(uv))
    if uv is None or not finished.ok:
        install = [*_pip(directory), "install", *_OPTIONS, *wanted]
        finished = await _run(install, directory, max(0.1, until - time.monotonic()))
    if not finished.ok:
        raise _failed(requirements, finished, seconds)
    discard(scratch)


def _uv(ours: Mapping[str, str]) -> str | None:
    """uv, unless pip is set up here in a way that uv does not know."""
    found = None if any(name in ours for name in _PIP_ALONE) else find_uv()
    return None if found is None else os.path.realpath(found)


async def _run(argv: Sequence[str], directory: Path, seconds: float, *, uv: Path | None = None) -> Finished:
    environment = _environment(os.environ, directory / "tmp")
    if uv is not None:
        environment |= {new: environment[old] for old, new in _AS_UV.items() if old in environment}
    policy = Policy(
        network=True,
        # Not what names the scratch directory, which is to be written.
        readable=(*named_files(source_variables(os.environ)), *([] if uv is None else [uv])),
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
    said = decoded(finished.stdout + finished.stderr)
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
