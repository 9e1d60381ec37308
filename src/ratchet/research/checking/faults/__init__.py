"""Ratchet with something broken: evaluators, the disk, the sandbox, the supervisor. It tests the machine, no task."""

from ratchet.research.checking.faults.harness import check_harness

__all__ = ["check_harness"]
