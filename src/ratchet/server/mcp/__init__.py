"""The MCP face: projects, protocols, research, workflows, tools and agents for coding agents, over stdio or HTTP."""

from ratchet.server.mcp.serving import Answering, serve_http, serve_stdio

__all__ = ["Answering", "serve_http", "serve_stdio"]
