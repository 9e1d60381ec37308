"""Environments: directories with installed packages, each made once for all who need the same."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.environments._sweep import sweep
    from ratchet.environments.store import (
        Busy,
        find,
        find_or_make,
        forget,
        named_files,
        own_pip,
        source_variables,
    )
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Busy",
    "find",
    "find_or_make",
    "forget",
    "named_files",
    "own_pip",
    "source_variables",
    "sweep",
]
