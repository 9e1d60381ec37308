"""The console: server-rendered pages at /console, live by server-sent events."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.server.console.app import create_console
else:
    __getattr__ = on_demand(__name__)
