"""The plain baselines: first fit and best fit on the instances of this task. `python plain.py SEEDS`."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray

Room = NDArray[np.int64]


def first_fit(room: Room, item: int) -> int:
    return int((room >= item).argmax())


def best_fit(room: Room, item: int) -> int:
    return int(np.where(room >= item, room, room.max() + 1).argmin())


def assigned(rule: Callable[[Room, int], int], items: list[int], capacity: int) -> list[int]:
    """The bin of each item. A new bin is always at hand, behind all that were opened."""
    room = np.full(len(items) + 1, capacity)
    opened, chosen = 0, []
    for item in items:
        place = rule(room[: opened + 1], item)
        room[place] -= item
        opened = max(opened, place + 1)
        chosen.append(place)
    return chosen


def main(seeds: int) -> None:
    evaluator = runpy.run_path(str(Path(__file__).parent / "evaluator" / "evaluate.py"))
    for family, held_out in (("Weibull", False), ("uniform", True)):
        questions = [evaluator["prepare"]({"seed": seed, "held_out": held_out}) for seed in range(seeds)]
        for name, rule in (("first fit", first_fit), ("best fit", best_fit)):
            scores = []
            for question in questions:
                packed = [assigned(rule, items, question["capacity"]) for items in question["instances"]]
                given = {"question": question, "trial": {"answer": {"assignments": packed}}}
                scores.append(evaluator["score"](given)["excess"])
            print(f"{family:8} {name:10} {mean(scores):.2f} %  ({min(scores):.2f} to {max(scores):.2f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
