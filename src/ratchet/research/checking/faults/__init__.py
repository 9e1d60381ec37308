"""Ratchet with something broken: evaluators, the disk, the sandbox, the supervisor. It tests the machine, no task."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.checking.faults.harness import check_harness
else:
    __getattr__ = on_demand(__name__)

__all__ = ["check_harness"]
