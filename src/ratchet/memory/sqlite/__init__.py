"""The embedded memory: one SQLite file, searched in this process."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.memory.sqlite.memory import SqliteMemory
else:
    __getattr__ = on_demand(__name__)
