"""Finding the environment of a set of requirements, or making it."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.config.workflow_settings import Tools
from ratchet.environments import Busy, find_or_make
from ratchet.tools.call import ToolFailed
from ratchet.tools.environments.building import build
from ratchet.tools.environments.requirement import read_requirements


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

    async def make(directory: Path) -> None:
        await build(directory, wanted, settings.install_seconds)

    try:
        directory = await find_or_make(
            _root(home) / _name(wanted),
            make,
            seconds=settings.install_seconds,
            keep_days=settings.environment_days,
        )
    except Busy as busy:
        raise ToolFailed(str(busy), hint="wait for it, or raise tools.install_seconds") from busy
    except OSError as error:
        raise ToolFailed(
            f"no environment can be made for {', '.join(wanted)}: {error}",
            hint="free some space and check the rights of Ratchet's home, then try again",
        ) from error
    return Environment(directory)


def _root(home: Path) -> Path:
    return home.resolve() / "tools" / "environments"


def _name(requirements: Sequence[str]) -> str:
    """The same for the same packages on the same Python."""
    facts = [platform.python_implementation(), platform.python_version(), platform.machine(), sys.base_prefix]
    return hashlib.sha256(json.dumps([*facts, *requirements]).encode()).hexdigest()[:32]
