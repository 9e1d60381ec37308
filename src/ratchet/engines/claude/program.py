"""The SDK and the program that it drives: where they are, and whether they are the right ones."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ratchet.config.engine_settings import Claude
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.versions import version_of

# Older ones take an @path or a /command inside a prompt for an order of the person who starts them.
OLDEST = (2, 1, 248)

_NAMED = "set engines.claude.path to the Claude Code CLI, or unset it to use the SDK's own"
_VERSION = re.compile(rb"(\d{1,9})\.(\d{1,9})\.(\d{1,9}) \(Claude Code\)")


@dataclass(frozen=True, slots=True)
class Program:
    path: Path
    version: str
    sdk_version: str


# By path, size and time of change: a program that was replaced is asked again.
_known: dict[tuple[Path, int, int], str] = {}


async def find_program(settings: Claude, environment: Mapping[str, str]) -> Program:
    """The program to use, of a version that will do. Raises `Fault`."""
    path = _located(settings, environment)
    stat = path.stat()
    key = (path, stat.st_size, stat.st_mtime_ns)
    if key not in _known:
        update = f"update it, or unset engines.claude.path and {_install()}"
        _known[key] = await version_of(path, _VERSION, OLDEST, mend=_NAMED, update=update)
    return Program(path, _known[key], version("claude-agent-sdk"))


def _install() -> str:
    # Only now: it reads what the installation says of itself.
    from ratchet.extras import install_line

    return install_line("claude")


def _located(settings: Claude, environment: Mapping[str, str]) -> Path:
    package = importlib.util.find_spec("claude_agent_sdk")
    if package is None or not package.submodule_search_locations:
        raise Fault(Failure.MISSING, "the Claude Agent SDK is not installed", hint=_install())
    if settings.path is not None:
        named = str(Path(settings.path).expanduser())
        if found := shutil.which(named, path=environment.get("PATH", os.defpath)):
            return Path(found).resolve()
        raise Fault(
            Failure.MISSING, f"engines.claude.path is {settings.path}, which is not a program", hint=_NAMED
        )
    bundled = Path(package.submodule_search_locations[0], "_bundled", "claude")
    if not bundled.is_file():
        raise Fault(
            Failure.MISSING,
            "the Claude Agent SDK was installed without its program",
            hint="install the Claude Code CLI and name it in engines.claude.path",
        )
    return bundled
