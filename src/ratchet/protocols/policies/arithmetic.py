"""Where a loop goes back to, and what it has done again. Pure numbers."""

from __future__ import annotations

from collections.abc import Iterable, Set


def loop_target(index: int, step_back: int, skipped: Set[int]) -> int:
    """The index that a loop of the step at `index` goes back to: never below 0, and past what it skips."""
    target = max(0, index - max(1, step_back))
    while target in skipped and target > 0:
        target -= 1
    return target


def steps_again(target: int, skipped: Set[int], live: Iterable[int]) -> list[int]:
    """Which of the `live` indexes are done again: those from the target on that are not skipped."""
    return sorted(index for index in live if index >= target and index not in skipped)


def limit_reached(count: int, most: int | None) -> bool:
    """Whether a loop that went back `count` times may not do so again."""
    return most is not None and count >= most
