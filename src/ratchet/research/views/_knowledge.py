"""The knowledge page: the lineage of the best, what was tried last, and what was learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.research.views._insights import Insights, insights
from ratchet.research.views._tree import Tree, tree
from ratchet.research.views.activity import Activity, recent_activity

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Knowledge:
    tree: Tree
    activity: Activity
    insights: Insights

    def to_dict(self) -> dict[str, Any]:
        return {
            "tree": self.tree.to_dict(),
            "recent_activity": self.activity.to_dict(),
            "key_insights": self.insights.to_dict(),
        }

    def to_markdown(self) -> str:
        """What was learned comes first: it is the part that must not be cut off."""
        parts = (
            "# Knowledge",
            f"## Key Insights\n\n{self.insights.to_markdown()}",
            f"## Research Tree\n\n{self.tree.to_markdown()}",
            f"## Recent Activity (last {len(self.activity.rows)})\n\n{self.activity.to_markdown()}",
        )
        return "\n\n".join(parts) + "\n"


def knowledge(tx: Transaction, run_id: int) -> Knowledge:
    return Knowledge(tree(tx, run_id), recent_activity(tx, run_id), insights(tx, run_id))
