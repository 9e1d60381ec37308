"""The Codex CLI as an engine."""

from ratchet.engines.codex.engine import open_codex

__all__ = ["open_codex"]
