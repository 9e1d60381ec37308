"""Ratchet runs coding agents in a loop that only moves forward."""

__version__ = "0.1.0"
