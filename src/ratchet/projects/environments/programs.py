"""The programs that a set-up and its checks call: where they are on this machine, and what else they must see."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/nix/store")
_OFTEN = ("node", "npm", "npx", "git", "make", "cargo", "rustc", "go", "java", "mvn", "gradle")
# What Debian's Java and Maven keep outside /usr.
_SETTINGS = (
    "/etc/maven",
    "/etc/java",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Directories that are searched for programs, and paths that these programs read."""

    places: tuple[str, ...]
    readable: tuple[str, ...]


def find_programs(named: Iterable[str]) -> Programs:
    """Those of the user's PATH that lie elsewhere than among the system's own."""
    places: dict[str, None] = {}
    readable: dict[str, None] = {path: None for path in _SETTINGS if Path(path).is_dir()}
    for name in dict.fromkeys((*named, *_OFTEN)):
        # Python comes from the environment itself.
        found = (
            None
            if "/" in name or name.startswith(("python", "pip"))
            else shutil.which(name, path=os.environ.get("PATH", os.defpath))
        )
        if found is None or _is_system(Path(found)):
            continue
        place, real = Path(found).absolute().parent, Path(found).resolve()
        places[str(place)] = None
        for path in (place, *_prefix(real)):
            readable[str(path)] = None
    return Programs(tuple(places), tuple(readable))


def _prefix(program: Path) -> tuple[Path, ...]:
    """The installation that a program belongs to, unless that is the user's own directory with all that is in it."""
    if _is_system(program):
        return ()
    top = program.parent.parent
    home = Path.home().resolve()
    is_private = home == top or home.is_relative_to(top) or top in (home / ".local", home / ".cargo")
    return (program.parent,) if is_private or program.parent.name != "bin" else (top,)


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(each) for each in _SYSTEM)
