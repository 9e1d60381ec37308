"""`ratchet init`"""

from __future__ import annotations

from ratchet.cli.command import command
from ratchet.cli.opening import has_ledger, say_where_home_is
from ratchet.cli.output import confirm
from ratchet.cli.session import CliSession, configure_logs
from ratchet.config import write_initial
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
