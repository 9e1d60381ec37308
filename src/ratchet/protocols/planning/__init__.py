"""Planning: a protocol's branch, its plan by an engine, and its steps."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.planning.errors import PlanBlocked, PlanFailed
    from ratchet.protocols.planning.numbering import (
        create_described,
        create_numbered,
        highest_taken,
        next_name,
    )
    from ratchet.protocols.planning.planning import plan_protocol
    from ratchet.protocols.planning.schema import PLAN_SCHEMA
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "PLAN_SCHEMA",
    "PlanBlocked",
    "PlanFailed",
    "create_described",
    "create_numbered",
    "highest_taken",
    "next_name",
    "plan_protocol",
]
