"""The servers of an agent's versions: started in a sandbox, known to answer before they are used, and called."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.agents.servers.client import Called, ServerGaveNoAnswer, StartFailed, call_tool, list_tools
    from ratchet.agents.servers.process import Launch
    from ratchet.agents.servers.server import AgentServer, Pair, serving, serving_pair
else:
    __getattr__ = on_demand(__name__)
