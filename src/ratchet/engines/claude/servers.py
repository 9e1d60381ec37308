"""The MCP servers of a session, as its program is told about them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from ratchet.engines.session import McpServer, Request
from ratchet.engines.supervision import seconds_for
from ratchet.kernel import Misuse

OURS = "ratchet"
"""The server that offers the tools of this process."""

_NAME = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")


def server_names(request: Request) -> tuple[str, ...]:
    """All of them, ours included if it has anything to offer."""
    return (*(server.name for server in request.mcp_servers), *((OURS,) if request.tools else ()))


def check_names(request: Request) -> None:
    """Raises `Misuse` for names that the program would change or could not tell apart."""
    names = server_names(request)
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            raise Misuse(
                f"the MCP server name {name!r} cannot be used",
                hint=f"take letters, digits, '-' and single '_', each name once, and not {OURS!r}",
            )


def write_servers(request: Request, path: Path) -> None:
    """Describe the servers outside this process in a file: a command line would show their secrets to everybody."""
    path.touch(mode=0o600)
    # A call may take as long as the session: it is the session that has a deadline.
    timeout = math.ceil(seconds_for(request) * 1000)
    servers = {each.name: {**_described(each), "timeout": timeout} for each in request.mcp_servers}
    path.write_text(json.dumps({"mcpServers": servers}))


def _described(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "http", "url": server.url}
    program, *arguments = server.argv
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.environment)}
