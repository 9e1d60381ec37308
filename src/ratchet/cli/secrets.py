"""Secrets as a person gives them: typed without being shown, or by the standard input; never as an argument."""

from __future__ import annotations

import sys

import click

from ratchet.kernel import Misuse

_LONGEST = 64 * 1024


def read_secret_text(name: str) -> str:
    """Raises `Misuse` when there is none."""
    if sys.stdin.isatty():
        text = str(click.prompt(name, hide_input=True, err=True, default="", show_default=False))
    else:
        text = sys.stdin.readline(_LONGEST)
    if not text.strip():
        raise Misuse(
            f"no value was given for {name}",
            hint='type it when asked, or pipe it: printf %s "$TOKEN" | ratchet …',
        )
    return text.strip()
