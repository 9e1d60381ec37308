"""The plain baseline: random starts of SLSQP, the best of them. `python plain.py SECONDS`."""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize  # type: ignore[import-untyped]

COUNT = 26
FIRST, SECOND = np.triu_indices(COUNT, 1)

Array = NDArray[np.float64]


def main(seconds: float) -> None:
    score = runpy.run_path(str(Path(__file__).parent / "evaluator" / "evaluate.py"))["score"]
    chance = np.random.default_rng(0)
    best, starts = 0.0, 0
    while time.process_time() < seconds or not starts:
        circles = settled(chance).reshape(3, COUNT).T.tolist()
        best = max(best, score({"trial": {"answer": {"circles": circles}}}).get("sum_radii", 0.0))
        starts += 1
    print(f"{best:.5f} after {starts} starts and {time.process_time():.0f} s of CPU time")


def settled(chance: np.random.Generator) -> Array:
    """A local optimum: all x, all y, all radii, shrunk until an exact check finds nothing."""
    start = np.concatenate([chance.random(2 * COUNT), np.zeros(COUNT)])
    found: Array = minimize(
        lambda circles: -circles[2 * COUNT :].sum(),
        start,
        jac=lambda _: np.repeat([0.0, 0.0, -1.0], COUNT),
        bounds=np.repeat([[0.0, 1.0], [0.0, 1.0], [0.0, 0.5]], COUNT, axis=0),
        constraints={"type": "ineq", "fun": room, "jac": slopes},
        method="SLSQP",
        options={"maxiter": 200},
    ).x
    found = np.clip(found, 0.0, 1.0)
    x, y, radii = found.reshape(3, COUNT)
    radii = np.minimum(radii, np.min([x, 1 - x, y, 1 - y], axis=0))
    distance = np.hypot(x[FIRST] - x[SECOND], y[FIRST] - y[SECOND])
    share = np.min(distance / np.maximum(radii[FIRST] + radii[SECOND], 1e-300), initial=1.0)
    return np.concatenate([x, y, np.maximum(radii * share - 1e-12, 0.0)])


def room(circles: Array) -> Array:
    """What is left between each two circles, and between each circle and the walls."""
    x, y, radii = circles.reshape(3, COUNT)
    apart = np.hypot(x[FIRST] - x[SECOND], y[FIRST] - y[SECOND]) - radii[FIRST] - radii[SECOND]
    return np.concatenate([apart, x - radii, 1 - x - radii, y - radii, 1 - y - radii])


def slopes(circles: Array) -> Array:
    x, y, _ = circles.reshape(3, COUNT)
    across, up = x[FIRST] - x[SECOND], y[FIRST] - y[SECOND]
    distance = np.maximum(np.hypot(across, up), 1e-9)
    pairs = np.zeros((len(FIRST), 3, COUNT))
    row = np.arange(len(FIRST))
    pairs[row, 0, FIRST], pairs[row, 0, SECOND] = across / distance, -across / distance
    pairs[row, 1, FIRST], pairs[row, 1, SECOND] = up / distance, -up / distance
    pairs[row, 2, FIRST] = pairs[row, 2, SECOND] = -1.0
    one, none = np.eye(COUNT), np.zeros((COUNT, COUNT))
    walls = np.block([[one, none, -one], [-one, none, -one], [none, one, -one], [none, -one, -one]])
    return np.vstack([pairs.reshape(len(FIRST), -1), walls])


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 4.0)
