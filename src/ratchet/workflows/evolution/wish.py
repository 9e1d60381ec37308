"""What is asked for, and what comes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ratchet.workflows.evolution.taking import Tried


@dataclass(frozen=True, slots=True)
class Wish:
    """Which tool is to be better, why, and who is asked. `step` begins the names of its steps in the run."""

    tool: str
    folder: str = ""
    why: str = "somebody asked for it"
    engine: str | None = None
    model: str | None = None
    step: str = ""


@dataclass(frozen=True, slots=True)
class Evolved:
    """What came of it. `version` is the one that is called now if `promoted`.

    `exhausted` says that the money or the time was gone before all tries were made.
    """

    tool: str
    promoted: bool
    why: str
    version: str | None = None
    improvement: float = 0.0
    tries: tuple[Tried, ...] = ()
    exhausted: bool = False

    @property
    def judged(self) -> bool:
        """Whether anything came to a verdict at all."""
        return any(each.judged for each in self.tries)

    def data(self) -> dict[str, Any]:
        """The outcome as a run keeps it."""
        return {**asdict(self), "judged": self.judged}


def given_up(wish: Wish, tried: list[Tried], why: str, *, exhausted: bool) -> Evolved:
    return Evolved(wish.tool, False, why, tries=tuple(tried), exhausted=exhausted)
