"""The memory on a Qdrant server, for a fleet on several machines."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.memory.qdrant.memory import QdrantMemory
    from ratchet.memory.qdrant.server import open_server, reembed_server
else:
    __getattr__ = on_demand(__name__)

__all__ = ["QdrantMemory", "open_server", "reembed_server"]
