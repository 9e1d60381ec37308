"""The memory on a Qdrant server, for a fleet on several machines."""

from ratchet.memory.qdrant.memory import QdrantMemory
from ratchet.memory.qdrant.server import open_server, reembed_server

__all__ = ["QdrantMemory", "open_server", "reembed_server"]
