"""A real Chromium: the one on this machine, or one from its package manager."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
PACKAGES = ("chromium", "fonts-liberation")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@functools.cache
def chromium() -> str:
    """Its path. Test processes that want it at once install it once."""
    with (Path(tempfile.gettempdir()) / "ratchet-tests-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _find()
        if found is None:
            _install()
            found = _find()
    assert found is not None, f"none of {', '.join(NAMES)} is on PATH; install the package chromium"
    return found


def _find() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def _install() -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        subprocess.run(["apt-get", "-qq", *words], env=quiet, check=True, stdout=subprocess.DEVNULL)
