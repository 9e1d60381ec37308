"""A real Chromium: the one on this machine, or one from its package manager."""

from __future__ import annotations

import functools

from tests.debian import program

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
    """Its path."""
    return program(*NAMES, packages=PACKAGES)
