"""The way to the Architect, who can change the agent itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ratchet.agentkit.blocking import finished
from ratchet.agentkit.connection import Address, Lost, call, connected
from ratchet.agentkit.errors import AnswerInvalid, ArchitectUnreachable, Misused
from ratchet.agentkit.surroundings import URL, surroundings

if TYPE_CHECKING:
    from mcp.types import CallToolResult

Severity = Literal["low", "normal", "high", "critical"]

_SEVERITIES = ("low", "normal", "high", "critical")
_SECONDS = 60.0
_PAUSES = (0.2, 0.5, 1.0)


def send_to_architect(message: str, severity: Severity = "normal") -> int:
    """Tell the Architect what should be better about this agent; returns the number of the run that it starts.

    Returns as soon as the Architect has taken the message, long before anything has changed. Works in async code
    too. Raises `ArchitectUnreachable`, and `ToolFailed` if the Architect refuses the message.
    """
    if not message.strip():
        raise Misused("the message to the Architect is empty")
    if severity not in _SEVERITIES:
        raise Misused(f"{severity!r} is no severity", hint=f"it is one of {', '.join(_SEVERITIES)}")
    answer = finished(
        lambda: use("send_feedback", {"message": message, "severity": severity}, seconds=_SECONDS)
    )
    said = answer.structured_content
    run = said.get("run_id") if isinstance(said, dict) else None
    if type(run) is not int:
        raise AnswerInvalid(
            f"the Architect took the message and answered {said!r:.200}, not the number of a run"
        )
    return run


async def use(tool: str, arguments: Mapping[str, Any], *, seconds: float) -> CallToolResult:
    """The answer of one of the Architect's tools.

    Tried again, a few times, only while it has not answered at all: then it cannot have taken anything. Raises
    `ArchitectUnreachable` and `ToolFailed`.
    """
    import asyncio

    address = _address()
    for pause in (*_PAUSES, None):
        try:
            async with connected(address, seconds) as client:
                return await call(client, tool, arguments)
        except Lost as lost:
            if lost.spoken:
                raise ArchitectUnreachable(
                    f"the Architect was lost while it was asked: {lost}",
                    hint="it may have taken the message: look before you send it again",
                    taken=None,
                ) from lost
            if pause is None:
                raise ArchitectUnreachable(
                    f"the Architect cannot be reached at {address.url}: {lost}",
                    hint="nothing was taken: keep the message and send it later",
                ) from lost
            await asyncio.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _address() -> Address:
    told = surroundings()
    if told.url is None:
        raise ArchitectUnreachable(
            f"{URL} is not set: Ratchet has not started this process", hint="run the agent with Ratchet"
        )
    return Address(f"{told.url}/architect/mcp", told.token)
