"""Where an agent answers, whatever its version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agents.contract import Role
from ratchet.agents.seat import announced

if TYPE_CHECKING:
    from ratchet.config.agent_settings import Agents


def address(base: str, name: str, role: Role, commit: str | None = None) -> str:
    """The address of a server of an agent: of its current version, or always of that commit."""
    who = name if commit is None else f"{name}@{commit}"
    return f"{base}/agents/{who}/{role}/mcp"


def addresses(home: Path, settings: Agents, name: str) -> dict[str, Any]:
    """Both addresses of an agent, and whether anybody answers there now.

    They are `None` while nobody answers and the port is to be any that is free.
    """
    running = announced(home)
    base = running or _configured(settings)
    urls = {str(role): None if base is None else address(base, name, role) for role in Role}
    return {**urls, "is_up": running is not None}


def _configured(settings: Agents) -> str | None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}" if settings.port else None
