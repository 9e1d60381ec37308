"""The Architect as an MCP server: for whoever holds the API token, and for the agents themselves."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.agents.architect_server.listening import architect_listening
else:
    __getattr__ = on_demand(__name__)

__all__ = ["architect_listening"]
