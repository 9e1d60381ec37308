"""The tools that change things. They are offered only where somebody has allowed it."""

from __future__ import annotations

from ratchet.server.every_operation import EVERY
from ratchet.server.mcp.tool import Declared

ACTING = tuple(tool for tool in map(Declared.of, EVERY) if tool is not None and not tool.reads)
