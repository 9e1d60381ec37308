"""Agents that are described in the configuration instead of programmed."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.engines.command.engine import open_command
else:
    __getattr__ = on_demand(__name__)
