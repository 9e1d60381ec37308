"""The embedded memory: one SQLite file, searched in this process."""

from ratchet.memory.sqlite.memory import SqliteMemory

__all__ = ["SqliteMemory"]
