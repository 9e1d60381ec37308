"""Completion of a line that is being typed. It answers at a key press, so it imports no command and nothing heavy."""

from ratchet.cli.completing.answering import answer

__all__ = ["answer"]
