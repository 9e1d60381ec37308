"""Hostile recipes: what they try, and how they are made from an honest one."""

from ratchet.research.checking.hostile.attack import Attack, Where
from ratchet.research.checking.hostile.exhausting import ENDS, EXHAUSTS
from ratchet.research.checking.hostile.forging import forgeries
from ratchet.research.checking.hostile.planting import plant
from ratchet.research.checking.hostile.reaching import REACHES

__all__ = ["ENDS", "EXHAUSTS", "REACHES", "Attack", "Where", "forgeries", "plant"]
