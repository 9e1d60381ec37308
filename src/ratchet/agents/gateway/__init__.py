"""The stable addresses of agents: a reverse proxy that asks a directory who answers."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.agents.gateway.gateway import Gateway
    from ratchet.agents.gateway.routes import (
        AgentRoute,
        Directory,
        Entered,
        GatewayLimits,
        SessionOver,
        Unavailable,
    )
else:
    __getattr__ = on_demand(__name__)
