"""A profile: what each step took, the longest way through them, and what is worth making better."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One step, as a mean over the runs that were looked at; `None` where nothing was measured.

    `wall_ms` is from its start to its end, all items of a list and all steps inside it included. `cached` and `failed`
    are parts of its calls. `time_share` is its part of all time that steps took, `path_share` that of the longest way.
    What `unpriced_tokens` of the tokens cost nobody knows: it is not in `cost_microusd`.
    """

    step: str
    tool: str | None
    calls: float
    wall_ms: float
    cpu_ms: float | None
    peak_bytes: int | None
    cost_microusd: float
    tokens: float
    unpriced_tokens: float
    cached: float
    failed: float
    tries: float
    time_share: float
    cost_share: float
    path_share: float


@dataclass(frozen=True, slots=True)
class Advice:
    """A tool that could be better. `value` is how often it is used times what there is to win; `obstacle` says why it
    cannot be rewritten, if it cannot. `folder` is where the ledger keeps it, as `evolve_tool` wants to know."""

    tool: str
    folder: str
    step: str
    calls: int
    quality: float
    path_share: float
    value: float
    why: str
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """`path_ms` is how long the steps of the longest way took, one after the other.

    `advice` has the most valuable tool first. `truncated` says that a run had more steps than were looked at.
    """

    workflow: str
    runs: tuple[int, ...]
    wall_ms: float
    cost_microusd: float
    tokens: float
    unpriced_tokens: float
    steps: tuple[StepProfile, ...]
    critical_path: tuple[str, ...]
    path_ms: float
    advice: tuple[Advice, ...] = ()
    truncated: bool = False

    @property
    def evolve_next(self) -> Advice | None:
        """The most valuable tool that can be rewritten."""
        return next((each for each in self.advice if each.obstacle is None and each.value > 0), None)

    def data(self) -> dict[str, Any]:
        following = self.evolve_next
        return {**asdict(self), "evolve_next": None if following is None else asdict(following)}
