"""The Codex CLI as an engine."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.engines.codex.engine import open_codex
else:
    __getattr__ = on_demand(__name__)
