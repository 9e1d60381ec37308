"""The Python that a project is set up with: the one that runs Ratchet, unless the project asks for another."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ratchet.kernel import Misuse

_ASK = "import json, sys; print(json.dumps(['%d.%d.%d' % sys.version_info[:3], sys.executable, sys.base_prefix]))"
_NEWEST, _OLDEST = 20, 8
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    version: str
    program: str
    prefix: str

    @property
    def identity(self) -> list[str]:
        return [self.version, self.prefix]


def find_interpreter(required: Iterable[str]) -> Interpreter:
    """The first interpreter of this machine that fits what the project says first. Raises `Misuse` if none does."""
    said = next((each for each in map(_specifier, required) if each is not None), SpecifierSet())
    for found in _interpreters():
        if said.contains(found.version, prereleases=True):
            return found
    there = ", ".join(dict.fromkeys(each.version for each in _interpreters()))
    raise Misuse(
        f"the project needs Python {said}, and this machine has {there}",
        hint="install such a Python, so that `python3.X` is on the PATH",
    )


def _specifier(text: str) -> SpecifierSet | None:
    """As packaging reads it, and with the marks that Poetry has."""
    plain = text.replace(" ", "").split("||")[0]
    if plain.startswith("^"):
        plain = f">={plain[1:]},<4"
    elif plain.startswith("~") and not plain.startswith("~="):
        plain = f"~={plain[1:]}.0" if plain.count(".") == 1 else f"~={plain[1:]}"
    elif plain == "*":
        plain = ""
    try:
        return SpecifierSet(plain)
    except InvalidSpecifier:
        return None


def _interpreters() -> Iterator[Interpreter]:
    own = getattr(sys, "_base_executable", None) or sys.executable
    programs = [own]
    for minor in range(_NEWEST, _OLDEST - 1, -1):
        found = shutil.which(f"python3.{minor}", path=os.environ.get("PATH", os.defpath))
        if found is not None:
            programs.append(found)
    for program in programs:
        known = _asked(program)
        if known is not None:
            yield known


@functools.lru_cache(maxsize=64)
def _asked(program: str) -> Interpreter | None:
    try:
        done = subprocess.run(
            [program, "-I", "-c", _ASK], capture_output=True, check=True, timeout=_SECONDS, cwd="/"
        )
        version, executable, prefix = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Interpreter(version, executable, prefix)
