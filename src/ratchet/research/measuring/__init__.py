"""Measuring: one score of a commit, taken in a slot by a trial and an evaluator that never meet."""

from ratchet.research.measuring.meter import TaskMeter
from ratchet.research.measuring.slots import Lease, SlotDesk

__all__ = ["Lease", "SlotDesk", "TaskMeter"]
