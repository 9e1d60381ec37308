"""Hostile recipes: what they try, and how they are made from an honest one."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.checking.hostile.attack import Attack, Where
    from ratchet.research.checking.hostile.exhausting import ENDS, EXHAUSTS
    from ratchet.research.checking.hostile.forging import forgeries
    from ratchet.research.checking.hostile.planting import plant
    from ratchet.research.checking.hostile.reaching import REACHES
else:
    __getattr__ = on_demand(__name__)

__all__ = ["ENDS", "EXHAUSTS", "REACHES", "Attack", "Where", "forgeries", "plant"]
