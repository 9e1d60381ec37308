"""Memory: lessons, tools and past work, found by meaning, by words and by tags."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.memory.embedders import (
        FILE_NAME,
        SharedWords,
        WordLlama,
        best_embedder,
        open_memory,
        reembed,
        search_advice,
    )
    from ratchet.memory.memory import (
        Embedder,
        FoundEntry,
        Memory,
        MemoryCorrupt,
        MemoryEntry,
        MemoryFault,
        MemoryFilter,
        MemoryTooNew,
        MemoryUnavailable,
        Where,
        WrongEmbedder,
    )
else:
    __getattr__ = on_demand(__name__)
