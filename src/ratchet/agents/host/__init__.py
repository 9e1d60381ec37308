"""The host of agents: their servers kept running, and one address for each that always leads to the right version."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.agents.addresses import reached
    from ratchet.agents.host.host import Host, hosting
else:
    __getattr__ = on_demand(__name__)
