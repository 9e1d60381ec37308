"""The servers of an agent's versions: started in a sandbox, known to answer before they are used, and called."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.agents.servers._serving import Pair, serving, serving_pair
    from ratchet.agents.servers.calling import Called, call_tool, list_tools
    from ratchet.agents.servers.failure import NoAnswer, StartFailed
    from ratchet.agents.servers.launch import Launch
    from ratchet.agents.servers.server import Server
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Called",
    "Launch",
    "NoAnswer",
    "Pair",
    "Server",
    "StartFailed",
    "call_tool",
    "list_tools",
    "serving",
    "serving_pair",
]
