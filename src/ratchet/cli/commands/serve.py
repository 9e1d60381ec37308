"""`ratchet serve`"""

from __future__ import annotations

import sys

import click

from ratchet.cli.command import command
from ratchet.cli.output import note, print_line
from ratchet.cli.params import PORT
from ratchet.cli.session import CliSession, configure_logs
from ratchet.runtime.addresses import server_addresses
from ratchet.server.supervisor import Serving
from ratchet.server.supervisor import serve as serve_until_told


@command(
    examples=["ratchet serve", "ratchet serve --port 0 --json", "ratchet serve --host 0.0.0.0 --port 8484"],
    see=["console", "worker", "processes"],
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on; server.host if not given.")
@click.option(
    "--port",
    type=PORT,
    metavar="PORT",
    help="Port, 0 takes a free one; server.port if not given, or the next free one.",
)
def serve(session: CliSession, host: str | None, port: int | None) -> int:
    """Serve the HTTP API and the console, with a worker beside them.

    One process answers requests and another one does jobs; whichever dies is started again. A home and a ledger are
    made if there are none. Requests need the token whose file is named at the start; in a terminal a link is printed
    that lets you into the console. SIGTERM or Ctrl-C drains: requests and jobs finish, nothing new is taken. Logs go to
    stderr. With --json one line on stdout has the addresses once requests are
    answered. Where the usual ports are taken, as by the server of another repository, the next free ones are used; a
    port that you set is used or refused. With --port, agents are served at a free one where theirs is taken.
    """
    loaded = session.load({"server.host": host, "server.port": port})
    configure_logs(loaded)
    others = server_addresses(loaded.home)

    def ready(serving: Serving) -> None:
        if session.json:
            token = None if serving.token_path is None else str(serving.token_path)
            console = f"{serving.url}/console/"
            print_line(
                {
                    "url": serving.url,
                    "console": console,
                    "agents": serving.agents_url,
                    "token_file": token,
                    "process": serving.process_id,
                }
            )
        else:
            note(f"Serving on {serving.url}; Ctrl-C drains and ends it.")
            note(f"Agents: {serving.agents_url or 'served by another process of this home'}")
            note(f"Token: {serving.token_path or 'as configured in server.token'}")
            note(f"Console: {_way_in(serving)}")
            for each in others:
                note(
                    f"{each.url} serves this home as well; `ratchet processes` lists its servers and workers."
                )

    return serve_until_told(loaded, port=port, ready=ready)


def _way_in(serving: Serving) -> str:
    """The link with the token in it only where a person reads it: a log is kept, and others may read it."""
    if sys.stderr.isatty():
        return serving.link
    return f"{serving.url}/console/, and `ratchet console` prints a link that lets you in"
