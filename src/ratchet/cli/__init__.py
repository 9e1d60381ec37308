"""The terminal's face: the command `ratchet`."""

from ratchet.cli.program import main, run

__all__ = ["main", "run"]
