"""The Architect as an MCP server: for whoever holds the API token, and for the agents themselves."""

from ratchet.agents.architect_server.listening import architect_listening

__all__ = ["architect_listening"]
