"""The console: server-rendered pages at /console, live by server-sent events."""

from ratchet.server.console.app import create_console

__all__ = ["create_console"]
