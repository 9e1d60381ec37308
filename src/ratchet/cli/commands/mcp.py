"""`ratchet mcp`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_runtime
from ratchet.cli.output import note, print_line
from ratchet.cli.params import PORT
from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.server.mcp import Answering

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
