"""Five problems that every side is given as the same program, and how each is measured.

A program is a table of genes, a line each, and a function that answers with them. What a model changes are lines of the
table; what is measured is the answer alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_PROGRAM = '''"""Answers with the genes of its table. More is better."""

# EVOLVE-BLOCK-START
{genes}
# EVOLVE-BLOCK-END


def run(given=None):
    return [{names}]
'''

# Half the distance to the nearest wall or circle at first; then each grows in turn as far as it may.
_CIRCLES = """
def measure(answer):
    points = [(min(1.0, max(0.0, x)), min(1.0, max(0.0, y))) for x, y in answer]
    far = [[math.dist(one, other) for other in points] for one in points]
    wall = [min(x, y, 1 - x, 1 - y) for x, y in points]
    count = range(len(points))
    radii = [min(wall[i], min(far[i][j] / 2 for j in count if j != i)) for i in count]
    for i in count:
        radii[i] = max(0.0, min(wall[i], min(far[i][j] - radii[j] for j in count if j != i)))
    return sum(radii)
"""
# The smallest triangle of any three of eleven points, as a share of the triangle that they lie in.
_HEILBRONN = """
def measure(answer):
    points = [(min(1.0, max(0.0, x)), min(1.0, max(0.0, y))) for x, y in answer]
    points = [(1 - x, 1 - y) if x + y > 1 else (x, y) for x, y in points]
    return min(
        abs((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]))
        for a, b, c in itertools.combinations(points, 3)
    )
"""
# Items go online into the bin that a weighted sum of powers of what would be left likes best.
_BINS = """
def measure(answer):
    weights = [each for pair in answer for each in pair]
    chance, capacity, bins, items = random.Random(7), 100, [], []
    for _ in range(400):
        items.append(min(capacity, max(1, round(chance.weibullvariate(45, 3)))))
    for item in items:
        open_bins = [at for at, left in enumerate(bins) if left >= item]
        if open_bins:
            share = lambda at: (bins[at] - item) / capacity
            best = max(open_bins, key=lambda at: sum(w * share(at) ** (k / 2) for k, w in enumerate(weights)))
            bins[best] -= item
        else:
            bins.append(capacity - item)
    return -(len(bins) / (sum(items) / capacity) - 1) - sum(left * left for left in bins) * -1e-9
"""
# How much a shell sort with these gaps compares and moves: the speed of code, counted and not timed.
_SORT = """
def measure(answer):
    gaps = sorted({max(1, round(abs(each))) for pair in answer for each in pair} | {1}, reverse=True)
    chance, work = random.Random(3), 0
    for _ in range(3):
        values = [chance.random() for _ in range(600)]
        for gap in gaps:
            for at in range(gap, len(values)):
                held, place = values[at], at
                while place >= gap:
                    work += 1
                    if values[place - gap] <= held:
                        break
                    values[place] = values[place - gap]
                    work += 1
                    place -= gap
                values[place] = held
    return -work / 1000
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """`begin` are the genes as they come; a step of a model is about `step` of what a gene may be, `reach`."""

    name: str
    title: str
    measuring: str
    begin: tuple[tuple[float, float], ...]
    reach: tuple[float, float]
    step: float

    @property
    def program(self) -> str:
        lines = "\n".join(gene(at, pair) for at, pair in enumerate(self.begin))
        return _PROGRAM.format(genes=lines, names=", ".join(f"G{at:02}" for at in range(len(self.begin))))

    @property
    def measure(self) -> str:
        """The source of `measure(answer)`."""
        return f"import itertools\nimport math\nimport random\n{self.measuring}"

    def scoring(self, tally: str) -> str:
        """The source of `score(program_path)`, which leaves a line in the file `tally` for each program."""
        return f"""import os
from pathlib import Path
{self.measure}

def score(program_path):
    names = {{}}
    exec(Path(program_path).read_text(), names)
    found = measure(names["run"]())
    tally = os.open({tally!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(tally, (repr(found) + "\\n").encode())
    os.close(tally)
    return found
"""


def gene(at: int, pair: tuple[float, float]) -> str:
    return f"G{at:02} = ({pair[0]:.5f}, {pair[1]:.5f})"


def _grid(count: int) -> tuple[tuple[float, float], ...]:
    """Points in rows, a little out of line so that no two problems of a kind begin alike."""
    chance = random.Random(count)
    side = -(-count // 5)
    return tuple(
        (
            min(1.0, max(0.0, (at % side + 0.5) / side + chance.uniform(-0.02, 0.02))),
            min(1.0, max(0.0, (at // side + 0.5) / 5 + chance.uniform(-0.02, 0.02))),
        )
        for at in range(count)
    )


_DOUBLED = ((1.0, 2.0), (4.0, 8.0), (16.0, 32.0), (64.0, 128.0))
PROBLEMS = (
    Problem("circles26", "26 circles", _CIRCLES, _grid(26), (0.0, 1.0), 0.05),
    Problem("circles32", "32 circles", _CIRCLES, _grid(32), (0.0, 1.0), 0.05),
    Problem("heilbronn11", "Heilbronn, 11 points", _HEILBRONN, _grid(11), (0.0, 1.0), 0.08),
    Problem("bins", "online bin packing", _BINS, ((0.0, 1.0), (0.0, 0.0), (0.0, 0.0)), (-5.0, 5.0), 0.1),
    Problem(
        "sort",
        "gaps of a shell sort",
        _SORT,
        ((1.0, 2.0), (4.0, 8.0), (16.0, 32.0), (64.0, 128.0)),
        (1.0, 300.0),
        0.05,
    ),
)
