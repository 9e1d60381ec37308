"""Names for workflows that have none."""

from __future__ import annotations

import re
import time

LONGEST_SLUG = 30


def workflow_id_for(description: str, *, now: float | None = None) -> str:
    """A name made of the first sentence of a description and the second in which it was made."""
    begin = description.lower().split(".")[0][:LONGEST_SLUG]
    slug = re.sub(r"[^a-z0-9]+", "_", begin).strip("_")
    return f"{slug or 'workflow'}_{int(time.time() if now is None else now)}"
