"""Calling an agent at its stable address: which tools it has, and what one of them answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.agents.addresses import address
from ratchet.agents.arguments import find_tool
from ratchet.agents.contract import Role, ToolShape
from ratchet.agents.host import reached
from ratchet.agents.references import find_version
from ratchet.agents.servers import Called, call_tool, list_tools
from ratchet.ledger.agents import get_agent

if TYPE_CHECKING:
    from ratchet.config import Loaded
    from ratchet.runtime import Runtime

CALL_SECONDS = 300.0
"""How long a caller waits for an answer who says nothing else."""


@dataclass(frozen=True, slots=True)
class Callee:
    """Whom a call is for: a server of an agent, of its current version if none is named."""

    name: str
    role: Role = Role.RUNNER
    version: str | None = None


async def tools_of(runtime: Runtime, loaded: Loaded, callee: Callee) -> Sequence[ToolShape]:
    """The tools that a server lists; it is started if it does not run. Raises `NotFound` or `NoAnswer`."""
    commit = await asyncio.to_thread(_commit, runtime, callee)
    async with reached(runtime, loaded) as base:
        return await list_tools(_url(base, callee, commit), _patience(loaded))


async def call(
    runtime: Runtime,
    loaded: Loaded,
    callee: Callee,
    tool: str,
    arguments: Callable[[ToolShape], Mapping[str, Any]],
    *,
    seconds: float = CALL_SECONDS,
) -> Called:
    """What a tool answers to the arguments that are made for it.

    Raises `NotFound`, `Misuse` for a tool that there is not or arguments that it does not take, and `NoAnswer`.
    """
    commit = await asyncio.to_thread(_commit, runtime, callee)
    async with reached(runtime, loaded) as base:
        url = _url(base, callee, commit)
        found = find_tool(await list_tools(url, _patience(loaded)), tool)
        return await call_tool(url, tool, arguments(found), seconds)


def _commit(runtime: Runtime, callee: Callee) -> str | None:
    """The commit to stay with; none where the address shall lead to whatever is current."""
    with runtime.ledger.read() as tx:
        found = find_version(tx, get_agent(tx, callee.name), callee.version or "current")
    return None if callee.version is None else found.commit


def _url(base: str, callee: Callee, commit: str | None) -> str:
    return address(base, callee.name, callee.role, commit)


def _patience(loaded: Loaded) -> float:
    """Long enough for a server that is started only now."""
    settings = loaded.settings.agents
    return settings.start_seconds + settings.call_seconds
