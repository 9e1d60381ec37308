"""`ratchet config …`"""

from __future__ import annotations

from dataclasses import asdict

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm, show_list
from ratchet.cli.session import Session


@command()
@click.pass_obj
def show(session: Session) -> None:
    """Show every setting, its value and its source.

    Rising in strength: what is built in, ratchet.toml, RATCHET_* variables, the command line. Secrets are masked.
    """
    show_list(
        session,
        session.load().explain(),
        {
            "key": lambda origin: origin.key,
            # As text: numbers and words stand in one column.
            "value": lambda origin: "(not set)" if origin.value is None else str(origin.value),
            "source": lambda origin: origin.source,
            "where": lambda origin: origin.where,
        },
        record=asdict,
        empty="There are no settings.",
    )


@command()
@click.pass_obj
def path(session: Session) -> None:
    """Print the path of ratchet.toml."""
    file = session.load().home / "ratchet.toml"
    confirm(session, {"path": str(file), "exists": file.exists()}, str(file))
