"""`ratchet serve`"""

from __future__ import annotations

import click

from ratchet.cli.command import command
from ratchet.cli.opening import configure_logs
from ratchet.cli.output import note
from ratchet.cli.records import print_line
from ratchet.cli.session import Session
from ratchet.observe import tracing
from ratchet.server import Serving
from ratchet.server import serve as serve_until_told


@command()
@click.option("--host", metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="Port; 0 takes a free one.")
@click.pass_obj
def serve(session: Session, host: str | None, port: int | None) -> int:
    """Serve the HTTP API, with a worker inside.

    SIGTERM or Ctrl-C drains: requests and jobs finish, nothing new is taken. Logs go to stderr. With --json one line
    on stdout tells the address once requests are answered.
    """
    loaded = session.load({"server.host": host, "server.port": port})
    configure_logs(loaded)
    tracing.configure(loaded.settings.tracing.enabled, loaded.settings.tracing.endpoint)

    def ready(serving: Serving) -> None:
        if session.json:
            token = None if serving.token_path is None else str(serving.token_path)
            print_line({"url": serving.url, "token_file": token, "process": serving.process_id})
        else:
            note(f"Serving on {serving.url}; Ctrl-C drains and ends it.")
            note(f"Token: {serving.token_path or 'as configured in server.token'}")

    try:
        return serve_until_told(loaded, ready=ready)
    finally:
        tracing.shutdown()
