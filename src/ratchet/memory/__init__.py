"""Memory: lessons, tools and past work, found by meaning, by words and by tags."""

from ratchet.memory.embedder import Embedder
from ratchet.memory.entry import Entry, Filter, Found, Where
from ratchet.memory.errors import (
    MemoryCorrupt,
    MemoryFault,
    MemoryTooNew,
    MemoryUnavailable,
    WrongEmbedder,
)
from ratchet.memory.memory import Memory
from ratchet.memory.opening import FILE_NAME, open_memory, reembed
from ratchet.memory.wordllama import WordLlama

__all__ = [
    "FILE_NAME",
    "Embedder",
    "Entry",
    "Filter",
    "Found",
    "Memory",
    "MemoryCorrupt",
    "MemoryFault",
    "MemoryTooNew",
    "MemoryUnavailable",
    "Where",
    "WordLlama",
    "WrongEmbedder",
    "open_memory",
    "reembed",
]
