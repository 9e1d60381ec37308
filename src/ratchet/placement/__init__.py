"""Where sandboxed work runs: in this process's machine, or on a node of a cluster. No flow knows which."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.placement.broker import Brokered, nodes_in_use, pinned_to, placement_for
    from ratchet.placement.node import NodeContext, NodeUnfit, facts, packed_directory, unpack_directory
    from ratchet.placement.work import (
        LOCAL,
        ClusterAway,
        Local,
        NodeNeeds,
        NodeRefused,
        Order,
        PlacedWork,
        Placement,
        Ticket,
        WorkDone,
        WorkFailed,
        WorkLost,
        WorkNews,
        carry_out,
        chosen_needs,
        content_hash,
    )
else:
    __getattr__ = on_demand(__name__)
