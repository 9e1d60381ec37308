"""Everything of a research run that people and prompts are shown, read from the ledger at a cost that stays flat."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.views._knowledge import insights, knowledge, tree, whole_tree
    from ratchet.research.views._report import (
        columns_of,
        evidence_of,
        full_report,
        leaderboard_of,
        read_diff,
        report,
    )
    from ratchet.research.views._status import Overview, compare, overview, read_live, read_status, status
    from ratchet.research.views.lineage import lineage_off_view, lineage_view
    from ratchet.research.views.specialists import calibration, cost, yields
    from ratchet.research.views.terminal import draw_live, live_text
    from ratchet.research.views.trials import leaderboard, near_misses, pairs, recent_activity, whole
else:
    __getattr__ = on_demand(__name__)
