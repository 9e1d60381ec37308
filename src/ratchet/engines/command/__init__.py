"""Agents that are described in the configuration instead of programmed."""

from ratchet.engines.command.engine import open_command

__all__ = ["open_command"]
