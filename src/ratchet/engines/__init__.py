"""Engines: what proposes. Each behind one seam, so that a flow never knows which one it was given."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.engines.engine import (
        Capabilities,
        Engine,
        EngineTool,
        EventKind,
        Failure,
        Guard,
        McpServer,
        Readiness,
        Request,
        Session,
        SessionEvent,
        SessionFailed,
    )
else:
    __getattr__ = on_demand(__name__)
