"""What a request's target names. Whatever is not spelled exactly like an address is none."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ratchet.agents.contract import Role
from ratchet.agents.gateway.directory import Route
from ratchet.agents.place import check_name
from ratchet.kernel import Misuse


class Architect:
    """The address of the Architect, which has no versions."""


ARCHITECT: Final = Architect()
ARCHITECT_PATH = "/architect/mcp"
AGENT_PATH = "/mcp"
"""Where the server of an agent answers on its own port."""

# No escapes, dot segments, doubled slashes, queries or absolute targets: two readers could understand them differently.
_AGENT = re.compile(
    r"/agents/([a-z0-9._-]+)(?:@([A-Za-z0-9][A-Za-z0-9.+_-]{0,63}))?/(runner|tuner)/mcp", re.ASCII
)


_LONGEST = 200


def route_of(target: bytes) -> Route | Architect | None:
    """The address that `target` spells, or `None`."""
    return _route_of(target) if len(target) <= _LONGEST else None


@lru_cache(maxsize=1024)
def _route_of(target: bytes) -> Route | Architect | None:
    text = target.decode("latin-1")
    if text == ARCHITECT_PATH:
        return ARCHITECT
    spelled = _AGENT.fullmatch(text)
    if spelled is None:
        return None
    name, version, role = spelled.groups()
    try:
        check_name(name)
    except Misuse:
        return None
    return None if version is not None and ".." in version else Route(name, Role(role), version)


def shown(route: Route | Architect) -> str:
    """A route as a sentence calls it."""
    if isinstance(route, Architect):
        return "the Architect"
    version = "" if route.version is None else f"@{route.version}"
    return f"the {route.role} of agent {route.agent}{version}"
