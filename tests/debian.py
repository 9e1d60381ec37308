"""Programs of the system that a test needs: found on the PATH, or installed from Debian's packages once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_EXTRA_PATH = "/usr/sbin"


def program(*names: str, packages: Sequence[str]) -> str:
    """The path of the first of these programs; if there is none, of the one that the packages bring."""
    if found := _find(names):
        return found
    # Test processes run side by side, and dpkg lets only one in.
    with (Path(tempfile.gettempdir()) / "ratchet-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _find(names) is None:
            _install(packages)
    found = _find(names)
    assert found is not None, f"none of {', '.join(names)} is on PATH; install {' '.join(packages)}"
    return found


def _find(names: Sequence[str]) -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", ""), _EXTRA_PATH))
    return next(filter(None, (shutil.which(name, path=path) for name in names)), None)


def _install(packages: Sequence[str]) -> None:
    # No service is started: a test starts its own.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "-qq", *words], env=quiet, check=True, stdout=subprocess.DEVNULL)
