"""Planning: a protocol's branch, its plan by an engine, and its steps."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.planning.branch import PlanBlocked, PlanFailed
    from ratchet.protocols.planning.plan import PLAN_SCHEMA
    from ratchet.protocols.planning.planner import plan_protocol
else:
    __getattr__ = on_demand(__name__)
