"""Git and Python."""

from __future__ import annotations

import re
import shutil
import sys

from ratchet.doctor.check import Check
from ratchet.doctor.command import ask
from ratchet.workspaces import LEAST_GIT

LEAST_PYTHON = (3, 11)


def git(path: str | None = None) -> list[Check]:
    """Git on `path` (by default the PATH), new enough."""
    least = ".".join(map(str, LEAST_GIT))
    mend = f"install git {least} or newer with the package manager of your system"
    program = shutil.which("git", path=path)
    if program is None:
        return [Check("git", "fail", "not found on the PATH", mend)]
    try:
        said = ask(program, "--version").first_line
    except OSError as error:
        return [Check("git", "fail", f"{program} cannot be run: {error.strerror}", mend)]
    found = re.search(r"(\d+)\.(\d+)\S*", said)
    if found is None:
        return [Check("git", "fail", f"{program} does not tell its version: {said!r}", mend)]
    if (int(found[1]), int(found[2])) < LEAST_GIT:
        return [Check("git", "fail", f"{found[0]} at {program} is older than {least}", mend)]
    return [Check("git", "ok", f"{found[0]} at {program}")]


def python() -> list[Check]:
    """The interpreter that runs this."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < LEAST_PYTHON:
        return [Check("python", "fail", f"{version} is too old", "install Python 3.11 or newer")]
    return [Check("python", "ok", f"{version} at {sys.executable}")]
