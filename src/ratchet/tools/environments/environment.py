"""Finding the environment of a set of requirements, or making it.

An environment is made in a directory of its own under a name that nobody has, and counts from the moment a link called
after the requirements points to it. Whoever dies before that leaves nothing that counts. It is never moved: the
programs that a package brings name the Python that they belong to.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.config.workflow_settings import Tools
from ratchet.tools.call import ToolFailed
from ratchet.tools.environments.building import build
from ratchet.tools.environments.requirement import read_requirements
from ratchet.tools.environments.sweeping import sweep

_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Environment:
    directory: Path

    @property
    def programs(self) -> Path:
        return self.directory / "bin"

    @property
    def python(self) -> Path:
        return self.programs / "python"


async def environment_for(requirements: Sequence[str], home: Path, settings: Tools) -> Environment:
    """The environment that has `requirements` installed, made now if there is none yet.

    Raises `ToolFailed` for requirements that cannot be installed, with the last words of the installer.
    """
    wanted = read_requirements(requirements)
    link = _root(home) / _name(wanted)
    if (found := _found(link)) is not None:
        return found
    try:
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        async with _locked(link, settings.install_seconds):
            # Whoever held the lock before may have made it.
            return _found(link) or await _make(wanted, link, settings)
    except OSError as error:
        raise ToolFailed(
            f"no environment can be made for {', '.join(wanted)}: {error}",
            hint="free some space and check the rights of Ratchet's home, then try again",
        ) from error


def _root(home: Path) -> Path:
    return home.resolve() / "tools" / "environments"


def _name(requirements: Sequence[str]) -> str:
    """The same for the same packages on the same Python."""
    facts = [platform.python_implementation(), platform.python_version(), platform.machine(), sys.base_prefix]
    return hashlib.sha256(json.dumps([*facts, *requirements]).encode()).hexdigest()[:32]


def _found(link: Path) -> Environment | None:
    """What `link` points to, marked as used; nothing if it does not lead to a whole environment."""
    directory = link.resolve()
    try:
        os.utime(directory)
    except OSError:
        return None
    return Environment(directory) if directory.parent == link.parent and link.is_symlink() else None


async def _make(requirements: Sequence[str], link: Path, settings: Tools) -> Environment:
    await asyncio.to_thread(sweep, link.parent, settings.environment_days, settings.install_seconds)
    directory = link.with_name(f"{link.name}-{secrets.token_hex(4)}")
    try:
        await build(directory, requirements, settings.install_seconds)
        pointer = directory.with_suffix(".link")
        pointer.symlink_to(directory.name)
        pointer.replace(link)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        raise
    return Environment(directory)


@contextlib.asynccontextmanager
async def _locked(link: Path, seconds: float) -> AsyncIterator[None]:
    """Only one process makes an environment. The kernel lets go of the lock of one that dies."""
    deadline = time.monotonic() + seconds
    with link.with_suffix(".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ToolFailed(
                        f"another process has been installing the same packages for {seconds:g} s",
                        hint="wait for it, or raise tools.install_seconds",
                    ) from None
                await asyncio.sleep(_PAUSE_SECONDS)
        yield
