"""Runs: looking at them, pausing, resuming and cancelling them."""

from __future__ import annotations

from ratchet.runtime.operations.runs import OPERATIONS
from ratchet.server.operation import router_of

router = router_of("runs", OPERATIONS)
