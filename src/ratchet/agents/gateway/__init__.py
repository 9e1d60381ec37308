"""The stable addresses of agents: a reverse proxy that asks a directory who answers."""

from ratchet.agents.gateway.directory import Directory, Entered, Route, SessionOver, Unavailable
from ratchet.agents.gateway.gateway import Gateway
from ratchet.agents.gateway.limits import Limits

__all__ = ["Directory", "Entered", "Gateway", "Limits", "Route", "SessionOver", "Unavailable"]
