"""The servers of an agent's versions: started in a sandbox, known to answer before they are used, and called."""

from ratchet.agents.servers.calling import Called, call_tool, list_tools
from ratchet.agents.servers.failure import NoAnswer, StartFailed
from ratchet.agents.servers.launch import Launch
from ratchet.agents.servers.server import Server
from ratchet.agents.servers.serving import Pair, serving, serving_pair

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
