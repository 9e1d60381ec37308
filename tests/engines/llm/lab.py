"""A small MCP server: `python lab.py` speaks over its pipes, `python lab.py PORT` listens."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

from mcp.server import MCPServer

server = MCPServer("lab", log_level="ERROR")
counted = itertools.count(1)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def count() -> int:
    """How often this process was asked."""
    return next(counted)


@server.tool()
def fail() -> str:
    """Never works."""
    raise ValueError("the lab is on fire")


@server.tool()
def environment() -> str:
    """The names of the variables that this server has."""
    return " ".join(sorted(os.environ))


@server.tool()
def leave_behind(directory: str) -> str:
    """Start a process that continues for ever and cannot be asked to end."""
    code = "import signal, time, pathlib, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "while True: pathlib.Path(sys.argv[1], 'beat').open('a').write('.'); time.sleep(0.05)"
    subprocess.Popen([sys.executable, "-c", code, directory])
    return "started"


@server.tool()
def die() -> str:
    """End the server at once."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response=True)
    else:
        server.run("stdio")
