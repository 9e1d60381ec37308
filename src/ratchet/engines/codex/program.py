"""Finding the Codex CLI, and making sure that it is one we know how to talk to."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.config.engine_settings import Codex
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.supervision import Invocation, try_out
from ratchet.engines.versions import NOWHERE, version_of

MINIMUM = (0, 163, 0)
_SECONDS = 30.0
_VERSION = re.compile(rb"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Program:
    """`default_model` is the one that it takes when none is named, if it tells."""

    path: Path
    version: str
    default_model: str | None = None


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
        _known[key] = Program(path, version, await _default_model(path))
    return _known[key]


def _install() -> str:
    # Only now: it reads what the installation says of itself.
    from ratchet.extras import install_line

    return f"{install_line('codex')}, or name it in engines.codex.path"


async def _default_model(path: Path) -> str | None:
    """The first model of the program's own list. It is named to it, so that its price is known before it is used."""
    asking = Invocation((str(path), "debug", "models", "--bundled"), Path("/"), NOWHERE, network=False)
    finished = await try_out(asking, _SECONDS)
    try:
        listed = json.loads(finished.stdout)["models"] if finished.ok else []
        offered = [each for each in listed if each["visibility"] == "list" and each["supported_in_api"]]
        return str(min(offered, key=lambda each: each["priority"])["slug"]) if offered else None
    except (ValueError, KeyError, TypeError):
        return None


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
