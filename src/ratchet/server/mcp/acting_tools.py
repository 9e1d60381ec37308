"""The tools that change things. They are offered only where somebody has allowed it."""

from __future__ import annotations

from typing import Any

from ratchet.server.every_operation import EVERY
from ratchet.server.mcp.tool import Declared


def _act(name: str, title: str, endpoint: str, description: str, **more: Any) -> Declared:
    return Declared(name, title, description, endpoint, **more)


ACTING: tuple[Declared, ...] = (
    *(tool for tool in map(Declared.of, EVERY) if tool is not None and not tool.reads),
)
