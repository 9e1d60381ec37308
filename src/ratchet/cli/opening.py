"""Opening the ledger and the runtime for a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.cli.output import note
from ratchet.cli.session import configure_logs
from ratchet.config.sources import HOME_NAME
from ratchet.kernel import Misuse
from ratchet.ledger import Ledger, open_ledger
from ratchet.ledger.database import current_revision, translated

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.config import Loaded
    from ratchet.runtime import Kinds, Runtime


@contextlib.contextmanager
def existing_ledger(session: CliSession, *, upgrade: bool = True) -> Iterator[Ledger]:
    """The ledger that is there, upgraded or as it is. Raises `Misuse` when there is none: looking must not make one."""
    loaded = session.load()
    configure_logs(loaded)
    require_ledger(loaded)
    with open_ledger(loaded, upgrade=upgrade) as ledger:
        yield ledger


@contextlib.contextmanager
def existing_runtime(session: CliSession, kinds: Kinds | None = None) -> Iterator[Runtime]:
    """The runtime on the ledger that is there, with the installed kinds of jobs unless others are given."""
    # Loaded here: a command that only reads needs the ledger and no runtime.
    from ratchet.runtime import open_runtime

    with existing_ledger(session) as ledger:
        yield open_runtime(session.load(), ledger, kinds)


def require_ledger(loaded: Loaded) -> None:
    if not has_ledger(loaded):
        raise Misuse(f"no ledger here: {loaded.settings.database_url} has none", hint="run `ratchet init`")


def say_where_home_is(home: Path) -> None:
    """Tell a person in a repository that the home they work on lies above it, where they may not expect it."""
    here = Path.cwd()
    root = next((each for each in (here, *here.parents) if (each / ".git").exists()), None)
    if home.name == HOME_NAME and root is not None and home.parent in root.parents:
        note(
            f"The home {home} lies above this repository and is used for it; "
            f"`ratchet init --home {root / HOME_NAME}` makes one for this repository alone."
        )


def has_ledger(loaded: Loaded) -> bool:
    """Whether the database holds a ledger. Makes no file to find out."""
    path = loaded.settings.database_url.path
    if path is not None and not path.exists():
        return False
    unopened = Ledger(loaded.settings.database_url.reveal(), loaded.home / "artifacts")
    with unopened as ledger, translated(ledger.url), ledger.engine.connect() as connection:
        return current_revision(connection) is not None
