"""A tool that adds up numbers the long way, and variants of it."""

from __future__ import annotations

from pathlib import Path

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
    "wrong for one": 'def run(n):\n    return {"sum": n * (n - 1) // 2 + (n == 1)}\n',
    "crashes": "def run(n):\n    raise RuntimeError('no')\n",
    "no python": "def run(n:\n",
    "peeks": "import os\n\n\ndef run(n):\n    os.listdir({home!r})\n    return {{'sum': n * (n - 1) // 2}}\n",
}


def variant(name: str, home: Path) -> str:
    source = _VARIANTS[name]
    return source.format(home=str(home)) if name == "peeks" else source
