"""Everything of a research run that people and prompts are shown, read from the ledger at a cost that stays flat."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.views._calibration import Calibrated, Calibration, calibration
    from ratchet.research.views._cost import Cost, cost
    from ratchet.research.views._insights import Insights, insights
    from ratchet.research.views._knowledge import Knowledge, knowledge
    from ratchet.research.views._leaderboard import Leaderboard, leaderboard
    from ratchet.research.views._overview import Overview, overview
    from ratchet.research.views._pairs import pairs
    from ratchet.research.views._report import report
    from ratchet.research.views._status import Status, read_status, status
    from ratchet.research.views._tree import Node, Tree, tree
    from ratchet.research.views._whole import whole
    from ratchet.research.views._whole_tree import whole_tree
    from ratchet.research.views._yields import Yield, Yields, yields
    from ratchet.research.views.activity import Activity, recent_activity
    from ratchet.research.views.baseline import Baseline, baseline_of
    from ratchet.research.views.comparison import Compared, Comparison, compare
    from ratchet.research.views.lineage import lineage_off_view, lineage_view
    from ratchet.research.views.live import Live, read_live
    from ratchet.research.views.misses import NearMisses, near_misses
    from ratchet.research.views.terminal import draw_live, live_text
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Activity",
    "Baseline",
    "Calibrated",
    "Calibration",
    "Compared",
    "Comparison",
    "Cost",
    "Insights",
    "Knowledge",
    "Leaderboard",
    "Live",
    "NearMisses",
    "Node",
    "Overview",
    "Status",
    "Tree",
    "Yield",
    "Yields",
    "baseline_of",
    "calibration",
    "compare",
    "cost",
    "draw_live",
    "insights",
    "knowledge",
    "leaderboard",
    "lineage_off_view",
    "lineage_view",
    "live_text",
    "near_misses",
    "overview",
    "pairs",
    "read_live",
    "read_status",
    "recent_activity",
    "report",
    "status",
    "tree",
    "whole",
    "whole_tree",
    "yields",
]
