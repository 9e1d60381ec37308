"""How much scores of one commit differ, as the baseline showed it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Noise:
    """`sd` is the spread of single scores, `held_out_sd` that on the held-out split; `None` where it is not known.

    `repeatable` says that the same seed gave the same score again, so that all noise comes from the seed.
    """

    sd: float | None = None
    repeatable: bool = False
    held_out_sd: float | None = None
