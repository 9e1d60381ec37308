"""Measurement: one score of a commit, taken in a slot by a trial and an evaluator that never meet."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.measurement.meter import TaskMeter
    from ratchet.research.measurement.slots import SlotPool
else:
    __getattr__ = on_demand(__name__)
