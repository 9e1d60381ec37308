"""`ratchet demo`"""

from __future__ import annotations

import sys

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED
from ratchet.cli.output import print_document
from ratchet.cli.session import CliSession
from ratchet.demo.show import ACTS, show

_ACT = click.Choice(ACTS)


@command(
    examples=[
        "ratchet demo",
        "ratchet demo --only research",
        "ratchet demo --only agents protocols",
        "ratchet demo --json",
    ],
    see=["serve", "runs list", "doctor"],
)
@click.option(
    "--only",
    "first",
    type=_ACT,
    metavar="ACT",
    help=f"Show only this act, and those named behind it: {', '.join(ACTS)}.",
)
@click.argument("more", metavar="[ACT]…", nargs=-1, type=_ACT, help="Further acts to show.")
def demo(session: CliSession, first: str | None, more: tuple[str, ...]) -> int:
    """Watch Ratchet work, in less than a minute.

    Five acts, without a model, a key or a network. A worker is killed with `kill -9`, and nothing is lost. Then, side
    by side: a search makes a program better (research); an agent is rewritten from feedback while it is in use
    (agents); a workflow runs its steps in parallel (workflows); a planned change of a git repository passes its gates
    (protocols). Where a model would be asked, a recording answers, and the act is marked as simulated.

    In the end there is a page with all of it in `reports` of Ratchet's home. A demo that was cut off, by Ctrl-C or by
    `kill -9`, resumes where it stopped when it is started again.

    With --json the story goes to stderr. Exits with 1 when an act failed; the others are shown all the same.
    """
    wanted = {first, *more} - {None} or set(ACTS)
    shown = show(
        session.load(),
        [act for act in ACTS if act in wanted],
        sys.stderr if session.json else sys.stdout,
    )
    if session.json:
        print_document(shown.record())
    if shown.interrupted:
        return INTERRUPTED
    return 0 if shown.passed else 1
