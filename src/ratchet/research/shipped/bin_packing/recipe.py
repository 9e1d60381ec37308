"""Packs items into bins as they come: each goes where the rule says, and stays there.

Without a penalty the rule is best fit. With one it shuns gaps that are too small to be filled, unless they are so small
that they hardly matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# A gap is a share of the capacity. One between TIGHT and DEAD is hardly ever filled: it is worth so much less.
TIGHT = 0.05  # search: 0.0..0.1
DEAD = 0.25  # search: 0.0..0.5
PENALTY = 0.0  # search: 0.0..2.0
# How the penalty falls from the smallest of these gaps to the largest, and how DEAD grows with the item.
FALL = 0.0  # search: -1.0..1.0
BEND = 0.0  # search: -1.0..1.0


def priority(item: int, bins: Array, capacity: int) -> Array:
    """How good each of `bins` is for the item, given the room in it. All of them fit; the last one is new."""
    gap = (bins - item) / capacity
    dead = max(DEAD * (2 * item / capacity) ** BEND, 1e-9)
    shunned = (gap > TIGHT) & (gap < dead)
    value: Array = -gap - shunned * PENALTY * (1 - FALL * gap / dead)
    return value


def pack(request: dict[str, Any]) -> dict[str, Any]:
    """The bin of each item of each instance; bins are numbered as they are opened."""
    question = request["question"]
    return {"assignments": [assign(items, question["capacity"]) for items in question["instances"]]}


def assign(items: list[int], capacity: int) -> list[int]:
    room = np.full(len(items) + 1, float(capacity))
    opened = 0
    chosen = []
    for item in items:
        fitting = np.flatnonzero(room[: opened + 1] >= item)
        best = int(fitting[priority(item, room[fitting], capacity).argmax()])
        room[best] -= item
        opened = max(opened, best + 1)
        chosen.append(best)
    return chosen
