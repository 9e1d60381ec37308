"""Everything of a research run that people and prompts are shown, read from the ledger at a cost that stays flat."""

from ratchet.research.views.activity import Activity, recent_activity
from ratchet.research.views.baseline import Baseline, baseline_of
from ratchet.research.views.calibration import Calibrated, Calibration, calibration
from ratchet.research.views.comparison import Compared, Comparison, compare
from ratchet.research.views.cost import Cost, cost
from ratchet.research.views.insights import Insights, insights
from ratchet.research.views.knowledge import Knowledge, knowledge
from ratchet.research.views.leaderboard import Leaderboard, leaderboard
from ratchet.research.views.lineage import lineage_off_view, lineage_view
from ratchet.research.views.live import Live, read_live
from ratchet.research.views.misses import NearMisses, near_misses
from ratchet.research.views.overview import Overview, overview
from ratchet.research.views.pairs import pairs
from ratchet.research.views.report import report
from ratchet.research.views.status import Status, read_status, status
from ratchet.research.views.terminal import draw_live, live_text
from ratchet.research.views.tree import Node, Tree, tree
from ratchet.research.views.whole import whole
from ratchet.research.views.whole_tree import whole_tree
from ratchet.research.views.yields import Yield, Yields, yields

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
