"""Approvals: what waits for a person, and the answers."""

from __future__ import annotations

from ratchet.runtime.operations.approvals import OPERATIONS
from ratchet.server.operation import router_of

router = router_of("approvals", OPERATIONS)
