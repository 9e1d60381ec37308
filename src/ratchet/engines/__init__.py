"""Engines: what proposes. Each behind one seam, so that a flow never knows which one it was given."""

from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.session import (
    Capabilities,
    EventKind,
    Guard,
    McpServer,
    Request,
    Session,
    SessionEvent,
    Tool,
)

__all__ = [
    "Capabilities",
    "Engine",
    "EventKind",
    "Failure",
    "Guard",
    "McpServer",
    "Readiness",
    "Request",
    "Session",
    "SessionEvent",
    "SessionFailed",
    "Tool",
]
