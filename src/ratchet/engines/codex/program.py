"""Finding the Codex CLI, and making sure that it is one we know how to talk to."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.config.codex_settings import Codex
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.versions import version_of

MINIMUM = (0, 163, 0)
_VERSION = re.compile(rb"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Program:
    path: Path
    version: str


# By path, size and time of change: a program that was replaced is asked again.
_known: dict[tuple[Path, int, int], Program] = {}


async def find_program(settings: Codex, environment: Mapping[str, str]) -> Program:
    """The program to use, of a version that will do. Raises `Fault`."""
    path = _native(_located(settings, environment))
    stat = path.stat()
    key = (path, stat.st_size, stat.st_mtime_ns)
    if key not in _known:
        version = await version_of(
            path, _VERSION, MINIMUM, mend=f"reinstall it: {_install()}", update=f"update it: {_install()}"
        )
        _known[key] = Program(path, version)
    return _known[key]


def _install() -> str:
    # Only now: it reads what the installation says of itself.
    from ratchet.extras import install_line

    return f"{install_line('codex')}, or name it in engines.codex.path"


def _located(settings: Codex, environment: Mapping[str, str]) -> Path:
    search = environment.get("PATH", os.defpath)
    if settings.path is not None:
        named = str(Path(settings.path).expanduser())
        if found := shutil.which(named, path=search):
            return Path(found).absolute()
        raise Fault(
            Failure.MISSING, f"engines.codex.path is {settings.path}, which is not a program", hint=_install()
        )
    if bundled := _bundled():
        return bundled
    if found := shutil.which("codex", path=search):
        return Path(found).absolute()
    raise Fault(Failure.MISSING, "the Codex CLI is not installed", hint=_install())


def _bundled() -> Path | None:
    """The one in the package of the extra `codex`."""
    try:
        from codex_cli_bin import bundled_codex_path  # type: ignore[import-untyped]

        return Path(bundled_codex_path())
    except (ImportError, FileNotFoundError):
        return None


def _native(path: Path) -> Path:
    """The program behind npm's wrapper, which starts slower and does not pass every signal on."""
    real = path.resolve()
    with real.open("rb") as file:
        if b"node" not in file.readline(200):
            return real
    for parent in real.parents[:6]:
        for found in sorted(parent.glob("codex-*/vendor/*/bin/codex")):
            if os.access(found, os.X_OK):
                return found
    return real
