"""Places 26 circles in the unit square so that the sum of their radii is large.

A first layout is improved by linear programs. Where the centres are, the distance of two circles is replaced by its
length along the line between them, which is never more than the true one: so whatever the program allows is a packing,
and each program begins where the last one ended. What has settled is kicked, and kept if it settles better.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

COUNT = 26
# The chance in here is always the same: a packing that was found once is found again.
CHANCE = 26

LAYOUT = "rows"  # search: "rows" | "rings" | "scattered"
ROWS = 6  # search: 3..8
STAGGER = 0.0  # search: 0.0..1.0
JITTER = 0.0  # search: 0.0..0.1
STEPS = 0  # search: 0..12
TRUST = 0.02  # search: 0.005..0.3 log
FADE = 1.0  # search: 0.5..1.0
KICKS = 0  # search: 0..60
KICKED = 3  # search: 1..26
KICK = 0.05  # search: 0.01..0.5 log
WHERE = "anywhere"  # search: "anywhere" | "nearby" | "smallest"
PATIENCE = 0.2  # search: 0.005..0.2 log

# Linear programs in all. Counted and not timed, so that the same recipe gives the same packing on every machine.
PROGRAMS = 300
# A kick has shown by then what it is worth.
PROMISING = 3

# Circles whose centres are further apart than this cannot touch in any packing worth having.
REACH = 0.4
# What floating point may have added to a radius, and more.
MARGIN = 1e-12
VANISHED = 1e-9

Array = NDArray[np.float64]
ONE, NONE = np.eye(COUNT), np.zeros((COUNT, COUNT))
WALLS = np.block([[-ONE, NONE, ONE], [ONE, NONE, ONE], [NONE, -ONE, ONE], [NONE, ONE, ONE]])


class Packing(NamedTuple):
    """`centres` has a row of two for each circle."""

    centres: Array
    radii: Array

    @property
    def total(self) -> float:
        return math.fsum(self.radii)


def pack(_request: dict[str, Any]) -> dict[str, Any]:
    """The packing, as `{"circles": [[x, y, radius], …]}`."""
    chance = np.random.default_rng(CHANCE)
    best, used = settle(first_layout(chance), 0.0)
    for _ in range(KICKS):
        if used >= PROGRAMS:
            break
        packing, more = settle(kicked(best, chance), best.total)
        best, used = max(best, packing, key=lambda packing: packing.total), used + more
    circles = np.column_stack([best.centres, best.radii])
    return {"circles": circles.tolist()}


def first_layout(chance: np.random.Generator) -> Array:
    centres = {"rows": rows(), "rings": rings(), "scattered": chance.random((COUNT, 2))}[LAYOUT]
    return np.clip(centres + JITTER * chance.standard_normal((COUNT, 2)), 0.001, 0.999)


def rows() -> Array:
    """As many in each row as in any other, or one more; every second row moved aside by a share of its spacing."""
    centres = []
    for row, members in enumerate(np.array_split(np.arange(COUNT), ROWS)):
        aside = STAGGER * (row % 2) / 2
        across = (np.arange(len(members)) + 0.5 + aside) / (len(members) + aside)
        centres.append(np.column_stack([across, np.full(len(members), (row + 0.5) / ROWS)]))
    return np.concatenate(centres)


def rings() -> Array:
    """Square rings around the middle: the longer a ring is, the more circles lie on it."""
    count = (ROWS + 1) // 2
    ends = [round(COUNT * (ring / count) ** 2) for ring in range(count + 1)]
    centres = []
    for ring, (begin, end) in enumerate(pairwise(ends)):
        for member in range(end - begin):
            angle = 2 * math.pi * (member + STAGGER * (ring % 2)) / (end - begin)
            way = np.array([math.cos(angle), math.sin(angle)])
            centres.append(0.5 + (ring + 0.5) / (2 * count) * way / np.abs(way).max())
    return np.array(centres)


def kicked(packing: Packing, chance: np.random.Generator) -> Array:
    """Some of the centres pushed about: any of them, those around a point, or the smallest thrown elsewhere."""
    centres = packing.centres.copy()
    if WHERE == "smallest":
        moved = np.argsort(packing.radii)[: min(2 * KICKED, COUNT)]
        moved = chance.choice(moved, (KICKED + 2) // 3, replace=False)
        centres[moved] = chance.random((len(moved), 2))
        return centres
    moved = chance.choice(COUNT, KICKED, replace=False)
    if WHERE == "nearby":
        moved = np.argsort(np.hypot(*(centres - chance.random(2)).T))[:KICKED]
    centres[moved] += KICK * chance.standard_normal((KICKED, 2))
    return np.clip(centres, 0.001, 0.999)


def settle(centres: Array, wanted: float) -> tuple[Packing, int]:
    """Move the centres by linear programs while that helps, and give them the largest radii that they allow.

    Gives up on what is far below what is `wanted` after a few steps. Also says how many programs that took.
    """
    packing = improved(centres, 0.0)
    for step in range(STEPS):
        following = improved(packing.centres, TRUST * FADE**step)
        if following.total < packing.total + 1e-7:
            return packing, step + 2
        packing = following
        if step + 1 == PROMISING and packing.total < wanted - PATIENCE:
            return packing, step + 2
    return packing, STEPS + 1


def improved(centres: Array, trust: float) -> Packing:
    """The best packing with every coordinate at most `trust` away, as far as straight lines can tell."""
    first, second = np.triu_indices(COUNT, 1)
    apart = centres[first] - centres[second]
    distance = np.hypot(apart[:, 0], apart[:, 1])
    near = distance < (REACH if trust else 1.0)
    first, second, distance = first[near], second[near], distance[near]
    way = apart[near] / np.maximum(distance, 1e-9)[:, None]
    pairs = np.zeros((len(first), 3, COUNT))
    row = np.arange(len(first))
    pairs[row, 0, first], pairs[row, 0, second] = -way[:, 0], way[:, 0]
    pairs[row, 1, first], pairs[row, 1, second] = -way[:, 1], way[:, 1]
    pairs[row, 2, first] = pairs[row, 2, second] = 1.0
    rows = np.vstack([pairs.reshape(len(first), -1), WALLS])
    x, y = centres.T
    limits = np.concatenate([distance, x, 1 - x, y, 1 - y])
    # Centres that must not move are no variables: between equal bounds there is no inside to start from.
    free = slice(None) if trust else slice(2 * COUNT, None)
    most, least = np.repeat([trust, trust, 0.5], COUNT)[free], np.repeat([trust, trust, 0.0], COUNT)[free]
    solution = np.zeros(3 * COUNT)
    solution[free] = largest(
        np.repeat([0.0, 0.0, 1.0], COUNT)[free], rows[:, free], limits, np.concatenate([most, least])
    )
    move_x, move_y, radii = solution.reshape(3, COUNT)
    return allowed(centres + np.column_stack([move_x, move_y]), radii)


def largest(gains: Array, rows: Array, limits: Array, bounds: Array) -> Array:
    """What makes `gains @ x` largest where `rows @ x <= limits` and `[x, -x] <= bounds`.

    An interior-point method, after Mehrotra. May end a little outside of the limits, or before it is largest, where the
    numbers become too small.
    """
    count, many = len(gains), len(limits)
    limits = np.concatenate([limits, bounds])
    x, slack, price = np.zeros(count), np.ones(len(limits)), np.ones(len(limits))
    across = rows.T.copy()

    def times(value: Array) -> Array:
        return np.concatenate([rows @ value, value, -value])

    def back(value: Array) -> Array:
        return across @ value[:many] + value[many : many + count] - value[many + count :]

    for _ in range(60):
        gap = slack @ price / len(limits)
        if gap < 1e-12:
            break
        unmet, unpaid, weight = limits - times(x) - slack, gains - back(price), price / slack
        # The first step aims at the edge; how far it would get says how near to the edge the real one aims.
        target: Array | float = 0.0
        normal = (across * weight[:many]) @ rows
        normal.flat[:: count + 1] += weight[many : many + count] + weight[many + count :]
        for aims_at_edge in (True, False):
            wanted = target / slack - price
            try:
                move = np.linalg.solve(normal, unpaid - back(wanted - weight * unmet))
            except np.linalg.LinAlgError:
                return x
            eased = unmet - times(move)
            paid = wanted - weight * eased
            share, price_share = within(slack, eased), within(price, paid)
            if aims_at_edge:
                ahead = (slack + share * eased) @ (price + price_share * paid) / len(limits)
                target = (ahead / gap) ** 3 * gap - eased * paid
        share, price_share = 0.99 * share, 0.99 * price_share
        x, slack, price = x + share * move, slack + share * eased, price + price_share * paid
    return x


def within(value: Array, change: Array) -> float:
    """The share of the change, at most all of it, after which nothing is below zero."""
    falls = change < 0
    return float(np.min(-value[falls] / change[falls], initial=1.0))


def allowed(centres: Array, radii: Array) -> Packing:
    """Shrunk until no circle overlaps another or the wall, however exactly one looks."""
    centres = np.clip(centres, 0.0, 1.0)
    radii = np.minimum(radii, np.minimum(centres, 1 - centres).min(axis=1))
    # Circles that have vanished may lie upon each other, which must not shrink all the rest.
    radii = np.where(radii < VANISHED, 0.0, radii)
    first, second = np.triu_indices(COUNT, 1)
    distance = np.hypot(*(centres[first] - centres[second]).T)
    touching = radii[first] + radii[second]
    share = np.min(distance / np.maximum(touching, 1e-300), initial=1.0)
    return Packing(centres, np.maximum(radii * share - MARGIN, 0.0))
