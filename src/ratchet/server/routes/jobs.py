"""Jobs: what was, is and will be done."""

from __future__ import annotations

from ratchet.runtime.operations.jobs import JOB_OPERATIONS
from ratchet.server.operation import router_of

router = router_of("jobs", JOB_OPERATIONS)
