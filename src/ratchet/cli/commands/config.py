"""`ratchet config …`"""

from __future__ import annotations

from dataclasses import asdict

from ratchet.cli.command import command
from ratchet.cli.output import confirm, note, show_list
from ratchet.cli.session import CliSession


@command(
    examples=[
        "ratchet config show",
        "RATCHET_SERVER__PORT=9000 ratchet config show --json | jq '.[] | select(.key == \"server.port\")'",
    ],
    see=["config path"],
)
def show(session: CliSession) -> None:
    """Show every setting, its value and its source.

    Rising in strength: what is built in, ratchet.toml, older names of variables (TASKSGODZILLA_*, PROTOCOL_*),
    RATCHET_* variables, the command line. Secrets are masked.
    """
    loaded = session.load()
    show_list(
        session,
        loaded.explain(),
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
    for ignored in loaded.ignored:
        note(ignored)


@command(examples=["ratchet config path", '$EDITOR "$(ratchet config path)"'], see=["config show"])
def path(session: CliSession) -> None:
    """Print the path of ratchet.toml.

    Whether there is such a file or not: `ratchet init` makes it.
    """
    file = session.load().home / "ratchet.toml"
    confirm(session, {"path": str(file), "exists": file.exists()}, str(file))
