"""The tools that change things. They are offered only where somebody has allowed it."""

from __future__ import annotations

from typing import Any

from ratchet.server.every_operation import EVERY
from ratchet.server.mcp.tool import Declared


def _act(name: str, title: str, endpoint: str, description: str, **more: Any) -> Declared:
    return Declared(name, title, description, endpoint, **more)


_RESEARCH = (
    _act(
        "start_research",
        "Start research",
        "POST /research",
        "Improve the recipe of an installed task under measurement, until one of the stops is reached.",
        outside=True,
        queues=True,
    ),
)
_AGENTS = (
    _act(
        "create_agent",
        "Create an agent",
        "POST /agents",
        "Make an agent, a pair of MCP servers, from a description of what it should do. A coding engine writes it, "
        "which takes minutes: look with wait_for_run.",
        outside=True,
        queues=True,
    ),
    _act(
        "send_feedback",
        "Give an agent feedback",
        "POST /agents/{name}/feedback",
        "Tell an agent what was wrong with it, or what is wanted. It changes nothing, its state or its code; changed "
        "code is tested before it is used.",
        outside=True,
        queues=True,
    ),
    _act(
        "call_agent",
        "Call an agent",
        "POST /agents/{name}/call",
        "Call a tool of an agent and get its answer; get_agent_version lists its tools. That the tool failed is told "
        "by `failed`.",
        destructive=True,
        outside=True,
    ),
    _act(
        "promote_agent",
        "Promote a version of an agent",
        "POST /agents/{name}/promote",
        "Let the address of an agent lead to this version from now on.",
        repeatable=True,
    ),
    _act(
        "rollback_agent",
        "Roll an agent back",
        "POST /agents/{name}/rollback",
        "Take an agent back to an earlier version: the one before the current one, unless another is named.",
    ),
    _act(
        "pin_agent",
        "Pin an agent",
        "POST /agents/{name}/pin",
        "Hold the address of an agent at this version: new versions do not move it.",
        repeatable=True,
    ),
    _act(
        "unpin_agent",
        "Unpin an agent",
        "POST /agents/{name}/unpin",
        "Let new versions move the address of an agent again.",
        repeatable=True,
    ),
    _act(
        "restore_agent_state",
        "Restore the state of an agent",
        "POST /agents/{name}/state/restore",
        "Bring the state back that an agent had after the change `number`, as a new change.",
        repeatable=True,
    ),
    _act(
        "delete_agent",
        "Delete an agent",
        "DELETE /agents/{name}",
        "Delete an agent; its name is free again.",
        without=frozenset({"purge"}),
        destructive=True,
    ),
)

ACTING: tuple[Declared, ...] = (
    *_RESEARCH,
    *_AGENTS,
    *(tool for tool in map(Declared.of, EVERY) if tool is not None and not tool.reads),
)
