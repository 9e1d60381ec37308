"""Answering a shell that asks how a line may go on."""

from __future__ import annotations

import os

import click
from click.shell_completion import shell_complete

from ratchet.cli.completing.shapes import shaped


def answer(root: click.Group, *, program: str, variable: str) -> int:
    """Print what may come next, as the shell wants it; the exit code."""
    try:
        return shell_complete(shaped(root), {}, program, variable, os.environ[variable])
    except Exception:  # noqa: BLE001  whatever is wrong, somebody is in the middle of typing and cannot be told
        return 1
