"""Finding the directory that holds the ledger, the artifacts and `ratchet.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ratchet.kernel import ConfigError

HOME_NAME = ".ratchet"

Source = Literal["default", "file", "environment", "flag"]


@dataclass(frozen=True, slots=True)
class Home:
    path: Path
    source: Source
    where: str


def find_home(flag: object, variable: str | None, cwd: Path) -> Home:
    """The flag, else `RATCHET_HOME`, else the nearest `.ratchet` at or above `cwd`, else `cwd/.ratchet`."""
    if flag:
        return Home(_directory(str(flag), cwd, "the flag home"), "flag", "command line")
    if variable:
        return Home(_directory(variable, cwd, "RATCHET_HOME"), "environment", "RATCHET_HOME")
    for directory in (cwd, *cwd.parents):
        if (directory / HOME_NAME).is_dir():
            return Home(directory / HOME_NAME, "default", f"the nearest {HOME_NAME} at or above {cwd}")
    return Home(_directory(HOME_NAME, cwd, "the home"), "default", f"no {HOME_NAME} at or above {cwd} yet")


def _directory(text: str, cwd: Path, origin: str) -> Path:
    path = cwd / Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise ConfigError(
            f"{origin} is {path}, which is not a directory", hint="name a directory, or remove the file"
        )
    return Path(path.absolute())
