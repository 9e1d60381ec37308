"""Setting Ratchet up: what there is to work with, which of it is used, and what it costs."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.setup.means import Means, find_means, install, missing_programs
    from ratchet.setup.plan import SetupPlan, plan_for
else:
    __getattr__ = on_demand(__name__)

__all__ = ["Means", "SetupPlan", "find_means", "install", "missing_programs", "plan_for"]
