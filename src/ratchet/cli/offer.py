"""Offering `ratchet setup` to a person whose command needs a model that nobody has chosen yet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ratchet.kernel import RatchetError

if TYPE_CHECKING:
    from ratchet.cli.session import Session

SETUP = "`ratchet setup`"
"""How the hint of an error names it: such an error is one that it mends."""


def wants_setup(error: BaseException, session: Session) -> bool:
    """Whether setup may help and the person at the terminal agrees to it."""
    helps = isinstance(error, RatchetError) and SETUP in (error.hint or "")
    if not helps or session.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return click.confirm(f"Run {SETUP} now, and then this command again?", default=True, err=True)
    except click.Abort:
        return False


def setup_line(session: Session) -> list[str]:
    """The arguments that set up the home that the command was for."""
    names = {"home": "--home", "database_url": "--database-url"}
    given = {name: session.flags.get(name) for name in names}
    return [
        "setup",
        *(word for name, value in given.items() if value is not None for word in (names[name], str(value))),
    ]
