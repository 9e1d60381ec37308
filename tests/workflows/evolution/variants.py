"""A tool that adds up numbers the long way, and variants of it."""

from __future__ import annotations

from pathlib import Path

from tests.workflows.evolution.graphs import graph
from tests.workflows.evolution.ten import TEN

# Some 15 ms of work for the inputs that the tests use, for which `direct` needs next to nothing.
SLOW = """\
def run(n):
    \"\"\"The sum of all whole numbers below n.\"\"\"
    total = 0
    for number in range(n):
        total += number
    return {"sum": total}
"""

# So much slower that no noise hides it.
SLOWER = SLOW.replace("total += number", "total += sum([number] * 8) // 8")
# It counts the number itself as well, so it fails its example.
WRONG = SLOW.replace("range(n)", "range(n + 1)")
_RIGHT = 'def run(n):\n    return {"sum": n * (n - 1) // 2}\n'
_LARGE = 100_000

_VARIANTS = {
    "same": SLOW,
    "reformatted": SLOW.replace('    """The sum of all whole numbers below n."""\n', "    # Add them up.\n"),
    "direct": _RIGHT,
    "as slow": SLOW.replace("total += number", "total = total + number"),
    "slower": SLOWER,
    # Right for the example and every small number.
    "subtly wrong": f'def run(n):\n    return {{"sum": n * (n - 1) // 2 + (n > {_LARGE})}}\n',
    "knows the example": 'def run(n):\n    return {"sum": 45} if n == 10 else {"sum": 0}\n',
    "as wrong": WRONG.replace("total += number", "total = total + number"),
    # Keeps the machine busy behind its own back, so that the other side looks slow.
    "burns": "import os\n\n\ndef run(n):\n    while os.fork() == 0:\n        os.setsid()\n        while True: pass\n"
    + SLOW.partition("\n")[2],
    "wrong for one": 'def run(n):\n    return {"sum": n * (n - 1) // 2 + (n == 1)}\n',
    "crashes": "def run(n):\n    raise RuntimeError('no')\n",
    "no python": "def run(n:\n",
    "peeks": "import os\n\n\ndef run(n):\n    os.listdir({home!r})\n    return {{'sum': n * (n - 1) // 2}}\n",
}


def variant(name: str, home: Path) -> str:
    """One of the above, or as `TOOL/VARIANT` one of the ten tools, or as `graph/VARIANT` one of a workflow."""
    tool, _, proposed = name.partition("/")
    if tool == "graph":
        return graph(proposed)
    if proposed:
        return next(each for each in TEN if each.name == tool).variants[proposed]
    source = _VARIANTS[name]
    return source.format(home=str(home)) if name == "peeks" else source
