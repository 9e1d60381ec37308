"""The measurements behind a decision, side by side: what the trial came to and what the best of then did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ratchet.kernel import Direction
from ratchet.research.keeping.decided import Phase, Side
from ratchet.research.views.words import finite


def pairs(certificate: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The rounds of a certificate in order; `gain` is how much better the trial was in it. Empty if there are none."""
    if certificate is None:
        return []
    rounds: dict[Any, dict[str, Any]] = {}
    for taken in _measurements(certificate):
        if taken.get("phase") in (Phase.ROUND, Phase.HELD_OUT):
            key = (taken["phase"], taken.get("seed"))
            row = rounds.setdefault(key, {"phase": str(taken["phase"]), "seed": taken.get("seed")})
            row[str(taken.get("side"))] = finite(taken.get("score"))
    direction = Direction.MIN if certificate.get("direction") == Direction.MIN else Direction.MAX
    return [_pair(row, direction) for row in rounds.values()]


def _pair(row: Mapping[str, Any], direction: Direction) -> dict[str, Any]:
    challenger, champion = row.get(Side.CHALLENGER), row.get(Side.CHAMPION)
    gain = None if challenger is None or champion is None else direction.gain(challenger, champion)
    return {
        "phase": row["phase"],
        "seed": row["seed"],
        "challenger": challenger,
        "champion": champion,
        "gain": gain,
    }


def _measurements(certificate: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    taken = certificate.get("measurements")
    for each in taken if isinstance(taken, list) else []:
        if isinstance(each, Mapping):
            yield each
