"""The MCP face: projects, protocols, research, workflows, tools and agents for coding agents, over stdio or HTTP."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.server.mcp.server import Answering, serve_http, serve_stdio
else:
    __getattr__ = on_demand(__name__)
