"""Makes the instances of online bin packing, and checks and scores what a recipe did with them.

A recipe gets whole sequences and might look ahead. So every sequence has a twin that begins with the same items and
continues with others: a rule that decides by what has come so far puts the common items into the same bins in both.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any, NamedTuple

ITEMS = 2000
TWINS = 2


class Family(NamedTuple):
    name: str
    capacity: int


# The families of the published experiments: what is searched on, and what only a new best is tried on.
SEARCHED = Family("weibull", 100)
HELD_OUT = Family("uniform", 150)


class Unfit(Exception):
    """The answer is not a packing that an online rule makes."""


def prepare(given: dict[str, Any]) -> dict[str, Any]:
    """The question of a seed: twins in pairs, and nothing that says which ones belong together or where they part."""
    family = HELD_OUT if given["held_out"] else SEARCHED
    chance = random.Random(f"{family.name} {given['seed']}")
    instances = [instance for _ in range(TWINS) for instance in _twins(family, chance)]
    chance.shuffle(instances)
    return {"capacity": family.capacity, "instances": instances}


def _twins(family: Family, chance: random.Random) -> list[list[int]]:
    common = [_item(family, chance) for _ in range(chance.randint(ITEMS // 3, 2 * ITEMS // 3))]
    return [common + [_item(family, chance) for _ in range(ITEMS - len(common))] for _ in range(2)]


def _item(family: Family, chance: random.Random) -> int:
    if family == HELD_OUT:
        return chance.randint(20, 100)
    return min(max(round(chance.weibullvariate(45, 3)), 1), family.capacity)


def score(given: dict[str, Any]) -> dict[str, Any]:
    """By how many percent there are more bins than any packing needs, over all instances; or why it does not count."""
    capacity, instances = given["question"]["capacity"], given["question"]["instances"]
    try:
        assignments = read(given["trial"]["answer"], instances)
        used = [
            bins_used(number, items, assigned, capacity)
            for number, (items, assigned) in enumerate(zip(instances, assignments, strict=True))
        ]
        check_twins(instances, assignments)
    except Unfit as error:
        return {"invalid": str(error)}
    needed = [-(-sum(items) // capacity) for items in instances]
    return {
        "excess": _excess(sum(used), sum(needed)),
        "measurements": {
            "bins": float(sum(used)),
            "bound": float(sum(needed)),
            "worst": max(map(_excess, used, needed)),
        },
    }


def _excess(used: int, needed: int) -> float:
    return 100 * (used - needed) / needed


def read(answer: object, instances: list[list[int]]) -> list[list[int]]:
    """`{"assignments": [[bin of each item, …], …]}`. Trusts nothing about the shape."""
    if not isinstance(answer, dict) or list(answer) != ["assignments"]:
        raise Unfit('the answer must be an object with "assignments" and nothing else')
    assignments = answer["assignments"]
    if not isinstance(assignments, list) or len(assignments) != len(instances):
        raise Unfit(f"there must be a list of assignments for each of the {len(instances)} instances")
    for number, (items, assigned) in enumerate(zip(instances, assignments, strict=True)):
        if not isinstance(assigned, list) or len(assigned) != len(items):
            raise Unfit(f"instance {number} must have one bin for each of its {len(items)} items")
    return assignments


def bins_used(number: int, items: list[int], assigned: list[Any], capacity: int) -> int:
    """How many bins an instance took. Raises `Unfit` for a bin that is overfull or not numbered as it was opened."""
    room: list[int] = []
    for place, (item, chosen) in enumerate(zip(items, assigned, strict=True)):
        # A truth value is a whole number to Python.
        if type(chosen) is not int or not 0 <= chosen <= len(room):
            raise Unfit(
                f"instance {number}, item {place}: its bin must be one of the {len(room)} opened so far,"
                f" or {len(room)} for a new one"
            )
        if chosen == len(room):
            room.append(capacity)
        room[chosen] -= item
        if room[chosen] < 0:
            raise Unfit(f"instance {number}, item {place}: bin {chosen} holds more than {capacity}")
    return len(room)


def check_twins(instances: list[list[int]], assignments: list[list[int]]) -> None:
    """Raises `Unfit` if what comes later changed where something went."""
    # In the order of their items, twins are neighbours.
    order = sorted(range(len(instances)), key=lambda number: instances[number])
    for one, other in pairwise(order):
        common = _common(instances[one], instances[other])
        if assignments[one][:common] != assignments[other][:common]:
            raise Unfit(
                f"instances {one} and {other} begin with the same {common} items, which were packed differently:"
                " a rule must not look ahead, draw lots, or carry anything from one instance to the next"
            )


def _common(one: list[int], other: list[int]) -> int:
    """How many items they begin with in common."""
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
