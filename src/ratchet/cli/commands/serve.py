"""`ratchet serve`, `worker`, `console` and `mcp`"""

from __future__ import annotations

import sys
import webbrowser
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm, note, print_line
from ratchet.cli.params import COUNT, PORT
from ratchet.cli.session import CliSession, configure_logs
from ratchet.kernel import Missing
from ratchet.runtime import work
from ratchet.runtime.addresses import ServerAddress, server_addresses
from ratchet.server.address import Token, find_token
from ratchet.server.supervisor import Serving
from ratchet.server.supervisor import serve as serve_until_told

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.config import Loaded


from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.cli.opening import existing_runtime
from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.server.mcp import Answering


_PATIENCE_SECONDS = 10.0


@command(examples=["ratchet console", "ratchet console --open", "ratchet console --port 8485"], see=["serve"])
@click.option("--port", type=PORT, metavar="PORT", help="The port of one of several servers.")
@click.option("--open", "show", is_flag=True, help="Open it in the browser as well.")
def console(session: CliSession, port: int | None, show: bool) -> None:
    """Print a link into the console of the server that works on this home.

    The link has the token in it: anyone who has it can do what you can. The server must be running (`ratchet serve`).
    Of several the one that was started last is meant; --port names another. Where none of this home runs here, the
    address and port of the settings server.host and server.port are tried.
    """
    loaded = session.load({"server.port": port})
    url, token = _address(loaded, port).url, find_token(loaded)
    _ask(url, token)
    link = token.link(url)
    confirm(session, {"url": f"{url}/console/", "link": link}, link)
    if show:
        webbrowser.open(link)


def _address(loaded: Loaded, port: int | None) -> ServerAddress:
    found = [each for each in server_addresses(loaded.home) if port in (None, each.port)]
    return found[0] if found else ServerAddress(loaded.settings.server.host, loaded.settings.server.port)


def _ask(url: str, token: Token) -> None:
    """Raises `Missing` if no server answers there, or one that does not take the token."""
    import urllib.error
    import urllib.request

    asked = urllib.request.Request(f"{url}/runs?limit=1", headers={"Authorization": f"Bearer {token.value}"})
    try:
        with urllib.request.urlopen(asked, timeout=_PATIENCE_SECONDS):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise Missing(
            f"the server at {url} does not take the token of this home: it answers {error.code}",
            hint="it works on another home; start one here with `ratchet serve`",
        ) from error
    except OSError as error:
        raise Missing(
            f"no server answers at {url}: {getattr(error, 'reason', error)}",
            hint="start one with `ratchet serve`, or name the port of one that runs with --port",
        ) from error


@command(
    examples=["ratchet worker", "ratchet worker --slots 8 --log-format json"],
    see=["serve", "processes", "queue list"],
)
@click.option("--slots", type=COUNT, metavar="N", help="Jobs to do at once; runtime.slots if not given.")
def worker(session: CliSession, slots: int | None) -> None:
    """Run jobs until stopped.

    Several workers may share a ledger, on several machines if it is PostgreSQL. SIGTERM or Ctrl-C drains: nothing new
    is taken, and what runs may finish for runtime.drain_seconds. A second one ends at once; other workers then take the
    jobs over. Logs go to stderr.
    """
    loaded = session.load({"runtime.slots": slots})
    configure_logs(loaded)
    work(loaded)


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


_HOST, _PORT = "127.0.0.1", 8126


@command(
    examples=[
        "ratchet mcp",
        "ratchet mcp --allow-actions",
        "ratchet mcp --http --port 8126",
        "codex mcp add ratchet -- ratchet --home /path/to/.ratchet mcp",
    ],
    see=["serve", "agent call"],
)
@click.option(
    "--http", is_flag=True, help="Listen for streamable HTTP instead of speaking on stdin and stdout."
)
@click.option("--host", metavar="ADDRESS", help=f"Address to listen on with --http; {_HOST} if not given.")
@click.option(
    "--port",
    type=PORT,
    metavar="PORT",
    help=f"Port to listen on with --http; 0 takes a free one, and {_PORT} is taken if not given.",
)
@click.option("--allow-actions", is_flag=True, help="Also offer the tools that change things.")
@click.option(
    "--project-token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The token of a project that has one of its own; not with --http, where each request brings it.",
)
def mcp(
    session: CliSession,
    http: bool,
    host: str | None,
    port: int | None,
    allow_actions: bool,
    project_token_file: Path | None,
) -> None:
    """Serve Ratchet to coding agents as an MCP server.

    It offers projects, protocols, research, workflows, tools and agents as MCP tools and resources, and changes nothing
    unless --allow-actions is given. It speaks on stdin and stdout to the program that started it. With --http it
    listens, and every caller must bring the API's token. Logs go to stderr.
    """
    if not http and (host is not None or port is not None):
        raise Misuse("--host and --port are for --http", hint="add --http, or leave them out")
    if http and project_token_file is not None:
        raise Misuse(
            "--project-token-file is not for --http",
            hint="send the token with each request as X-Project-Token",
        )
    project_token = None if project_token_file is None else _token_in(project_token_file)
    with existing_runtime(session) as runtime:
        # Slow to import: help and mistakes do not wait for it.
        from ratchet.server.mcp import serve_http, serve_stdio

        loaded = session.load()
        if not http:
            serve_stdio(runtime, loaded, allow_actions=allow_actions, project_token=project_token)
            return
        serve_http(
            runtime,
            loaded,
            host=host or _HOST,
            port=_PORT if port is None else port,
            allow_actions=allow_actions,
            ready=lambda answering: _tell(session, answering),
        )


def _token_in(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(
            f"the token in {path} cannot be read: {error}", hint="name a file with the token alone"
        ) from None
    if not token.isascii() or not token.isprintable() or not token:
        raise Misuse(f"{path} holds no token", hint="put the token into it, on one line, and nothing else")
    return token


def _tell(session: CliSession, answering: Answering) -> None:
    if session.json:
        token = None if answering.token_path is None else str(answering.token_path)
        print_line({"url": answering.url, "token_file": token})
    else:
        note(f"Answering over MCP at {answering.url}; Ctrl-C ends it.")
        note(f"Token: {answering.token_path or 'as configured in server.token'}")
