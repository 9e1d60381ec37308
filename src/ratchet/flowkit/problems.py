"""Problems as they are told: not more and not longer than anybody reads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

MOST = 100
LONGEST = 500


def trimmed(problems: Iterable[str]) -> list[str]:
    """The first problems, each once. Those beyond are not even looked for."""
    found = list(islice(dict.fromkeys(islice(problems, 2 * MOST)), MOST + 1))
    told = [one if len(one) <= LONGEST else f"{one[: LONGEST - 1]}…" for one in found[:MOST]]
    return [*told, "and further problems"] if len(found) > MOST else told
