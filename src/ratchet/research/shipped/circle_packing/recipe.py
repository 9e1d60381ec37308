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
STEPS = 0  # search: 0..9
TRUST = 0.02  # search: 0.005..0.3 log
KICKS = 0  # search: 0..5
KICKED = 3  # search: 1..26
KICK = 0.05  # search: 0.01..0.5 log

# Circles whose centres are further apart than this cannot touch in any packing worth having.
REACH = 0.5
# What floating point may have added to a radius, and more.
MARGIN = 1e-12
VANISHED = 1e-9

Array = NDArray[np.float64]


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
    best = settle(first_layout(chance))
    for _ in range(KICKS):
        best = max(best, settle(kicked(best.centres, chance)), key=lambda packing: packing.total)
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


def kicked(centres: Array, chance: np.random.Generator) -> Array:
    moved = chance.choice(COUNT, KICKED, replace=False)
    centres = centres.copy()
    centres[moved] += KICK * chance.standard_normal((KICKED, 2))
    return np.clip(centres, 0.001, 0.999)


def settle(centres: Array) -> Packing:
    """Move the centres by linear programs while that helps, and give them the largest radii that they allow."""
    packing = improved(centres, 0.0)
    for _ in range(STEPS):
        following = improved(packing.centres, TRUST)
        if following.total < packing.total + 1e-7:
            break
        packing = following
    return packing


def improved(centres: Array, trust: float) -> Packing:
    """The best packing with every coordinate at most `trust` away, as far as straight lines can tell."""
    first, second = np.triu_indices(COUNT, 1)
    apart = centres[first] - centres[second]
    distance = np.hypot(apart[:, 0], apart[:, 1])
    near = distance < REACH
    first, second, distance = first[near], second[near], distance[near]
    way = apart[near] / np.maximum(distance, 1e-9)[:, None]
    pairs = np.zeros((len(first), 3, COUNT))
    row = np.arange(len(first))
    pairs[row, 0, first], pairs[row, 0, second] = -way[:, 0], way[:, 0]
    pairs[row, 1, first], pairs[row, 1, second] = -way[:, 1], way[:, 1]
    pairs[row, 2, first] = pairs[row, 2, second] = 1.0
    one, none = np.eye(COUNT), np.zeros((COUNT, COUNT))
    walls = np.block([[-one, none, one], [one, none, one], [none, -one, one], [none, one, one]])
    bounds = np.vstack([np.eye(3 * COUNT), -np.eye(3 * COUNT)])
    rows = np.vstack([pairs.reshape(len(first), -1), walls, bounds])
    x, y = centres.T
    most, least = np.repeat([trust, trust, 0.5], COUNT), np.repeat([trust, trust, 0.0], COUNT)
    limits = np.concatenate([distance, x, 1 - x, y, 1 - y, most, least])
    # Centres that must not move are no variables: between equal bounds there is no inside to start from.
    free = slice(None) if trust else slice(2 * COUNT, None)
    bounded = np.any(rows[:, free], axis=1)
    solution = np.zeros(3 * COUNT)
    solution[free] = largest(np.repeat([0.0, 0.0, 1.0], COUNT)[free], rows[bounded][:, free], limits[bounded])
    move_x, move_y, radii = solution.reshape(3, COUNT)
    return allowed(centres + np.column_stack([move_x, move_y]), radii)


def largest(gains: Array, rows: Array, limits: Array) -> Array:
    """What makes `gains @ x` largest where `rows @ x <= limits`: an interior-point method, after Mehrotra.

    May end a little outside of the limits, or before it is largest, where the numbers become too small.
    """
    x, slack, price = np.zeros(len(gains)), np.ones(len(limits)), np.ones(len(limits))
    for _ in range(60):
        gap = slack @ price / len(limits)
        if gap < 1e-13:
            break
        unmet, unpaid, weight = limits - rows @ x - slack, gains - price @ rows, price / slack
        # The first step aims at the edge; how far it would get says how near to the edge the real one aims.
        target: Array | float = 0.0
        normal = (rows.T * weight) @ rows
        for aims_at_edge in (True, False):
            wanted = target / slack - price
            try:
                move = np.linalg.solve(normal, unpaid - (wanted - weight * unmet) @ rows)
            except np.linalg.LinAlgError:
                return x
            eased = unmet - rows @ move
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
