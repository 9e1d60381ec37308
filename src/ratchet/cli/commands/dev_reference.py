"""`ratchet dev reference`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm
from ratchet.cli.progress import working

if TYPE_CHECKING:
    from ratchet.cli.session import Session


@command(examples=["ratchet dev reference", "ratchet dev reference --out /tmp/reference --json"], see=["man"])
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/reference"),
    show_default=True,
    metavar="DIR",
    help="Where the pages go.",
)
@click.pass_obj
def reference(session: Session, out: Path) -> None:
    """Write the reference of commands, API and settings anew from the code.

    For those who work on Ratchet itself: run it at the top of the repository whenever a command, a request or a setting
    has changed.
    """
    # Not before it is asked for: it imports every command and the server.
    from ratchet.cli.reference.files import write_pages

    with working("reading the code"):
        changed = write_pages(out)
    confirm(
        session,
        {"directory": str(out), "changed": [str(path) for path in changed]},
        "\n".join(f"{path} is written anew." for path in changed) or f"{out} is up to date.",
    )
