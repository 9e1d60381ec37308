"""`ratchet init` and `ratchet demo`"""

from __future__ import annotations

import sys

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED
from ratchet.cli.opening import has_ledger, say_where_home_is
from ratchet.cli.output import confirm, print_document
from ratchet.cli.session import CliSession, configure_logs
from ratchet.config import write_initial
from ratchet.demo.show import ACTS, show
from ratchet.runtime import open_ledger


@command(
    examples=[
        "ratchet init",
        "ratchet init --home ~/ratchet",
        "ratchet init --database-url postgresql://ratchet@db.example.org/ratchet",
    ],
    see=["setup", "doctor", "demo"],
)
def init(session: CliSession) -> None:
    """Make a home with its settings and ledger.

    The home is --home, else $RATCHET_HOME, else the nearest .ratchet at or above this directory, else a new
    .ratchet at the top of the git repository here, or in this directory. What is there already stays as it is, so it
    may be run again. ratchet.toml has every key with its default, commented out.
    """
    loaded = session.load()
    configure_logs(loaded)
    address = loaded.settings.database_url
    new_home = not loaded.home.exists()
    new_file = not (loaded.home / "ratchet.toml").exists()
    file = write_initial(loaded.home)
    new_ledger = not has_ledger(loaded)
    with open_ledger(loaded):
        pass
    say_where_home_is(loaded.home)
    made = {"home": new_home, "config": new_file, "ledger": new_ledger}
    document = {
        "home": str(loaded.home),
        "config": str(file),
        "ledger": str(address),
        "made": [name for name, new in made.items() if new],
    }
    confirm(
        session,
        document,
        f"home    {loaded.home}{_mark(new_home)}\n"
        f"config  {file}{_mark(new_file)}\n"
        f"ledger  {address}{_mark(new_ledger)}\n"
        "\n"
        "Next: `ratchet setup` finds a model to work with, `ratchet demo` shows the four flows without one, "
        "`ratchet doctor` checks this machine.",
    )


def _mark(new: bool) -> str:
    return " (made)" if new else " (was there)"


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
