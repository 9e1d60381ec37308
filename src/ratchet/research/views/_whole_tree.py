"""Every trial of a run and what it was made from, a page at a time, as columns: small enough to be drawn at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.ledger.research import get_standing
from ratchet.ledger.trial_pages import branches_after
from ratchet.research.views.row import RUNNING
from ratchet.research.views.words import finite, json_text

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction

PAGE = 5000


def whole_tree(tx: Transaction, run_id: int, *, after: int = -1, limit: int = PAGE) -> dict[str, Any]:
    """The trials with a number above `after`, oldest first; `next` is the `after` of the next page.

    `status` and `specialist` are places in `statuses` and `specialists`; a parent of -1 is none.
    """
    standing = get_standing(tx, run_id)
    rows = branches_after(tx, run_id, after, limit=limit + 1)
    page = rows[:limit]
    statuses = {each: place for place, each in enumerate(dict.fromkeys(row.status for row in page))}
    specialists = {each: place for place, each in enumerate(dict.fromkeys(row.specialist for row in page))}
    return {
        "run": run_id,
        "best": standing.best,
        "field": json_text(standing.score_field),
        "number": [each.number for each in page],
        "parent": [-1 if each.parent is None else each.parent for each in page],
        "score": [finite(each.score) for each in page],
        "status": [statuses[each.status] for each in page],
        "specialist": [specialists[each.specialist] for each in page],
        "statuses": [each or RUNNING for each in statuses],
        "specialists": [json_text(each) for each in specialists],
        "next": page[-1].number if len(rows) > limit else None,
    }
