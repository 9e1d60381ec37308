"""The host of agents: their servers kept running, and one address for each that always leads to the right version."""

from ratchet.agents.host.host import Host
from ratchet.agents.host.hosting import hosting, reached

__all__ = ["Host", "hosting", "reached"]
