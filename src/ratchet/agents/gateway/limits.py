"""How much the gateway takes from those it serves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one caller, or one server, may send, and how long it may take. What goes beyond is refused."""

    head_bytes: int = 64 * 1024
    headers: int = 128
    body_bytes: int = 16 * 1024 * 1024
    held_bytes: int = 64 * 1024
    """How much of a body is held back until it is whole; a longer one is passed on as it comes."""
    connections: int = 1000
    idle_backends: int = 32
    """Unused connections that are kept to one server."""
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    """How long a body may make no progress."""
    idle_seconds: float = 75.0
    """How long a caller's connection is kept without a request."""
    stalled_seconds: float = 300.0
    """How long a caller may leave its answer unread."""
    idle_backend_seconds: float = 4.0
    """Shorter than the 5 s after which most servers hang up, so that a request does not meet a closing connection."""
    connect_seconds: float = 5.0
    linger_seconds: float = 2.0
    """How long a caller that was refused may go on sending, so that it still gets to read why."""
    look_seconds: float = 1.0
    """Pause between two looks at who is overdue."""
