"""What an act came to, for the terminal, for programs and for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.research.views.markup import Markup


@dataclass(frozen=True, slots=True)
class Command:
    """Something to type in order to see more, and what it shows."""

    line: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One act that went well.

    `recorded` says what in it came from a recording, and is empty where nothing did; `real` what did not. `facts` are
    its figures by what they mean, `look` leads on.
    """

    headline: str
    facts: Mapping[str, str]
    real: str
    recorded: str = ""
    runs: Sequence[int] = ()
    look: Sequence[Command] = ()
    pictures: Sequence[Markup] = ()
    quotes: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        return bool(self.recorded)


@dataclass(frozen=True, slots=True)
class Failed:
    """One act that did not, and why."""

    reason: str
    hint: str | None = None

    @property
    def short(self) -> str:
        """The first line of the reason: behind it may be where in the code it happened."""
        return self.reason.strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an act ended, and how long it took."""

    act: str
    seconds: float
    came: Shown | Failed

    @property
    def passed(self) -> bool:
        return isinstance(self.came, Shown)

    def record(self) -> dict[str, Any]:
        """As JSON, without the pictures."""
        common = {"act": self.act, "passed": self.passed, "seconds": round(self.seconds, 1)}
        match self.came:
            case Shown() as shown:
                return {
                    **common,
                    "simulated": shown.simulated,
                    "headline": shown.headline,
                    "facts": dict(shown.facts),
                    "real": shown.real,
                    "recorded": shown.recorded or None,
                    "runs": list(shown.runs),
                    "look": [each.line for each in shown.look],
                }
            case Failed() as failed:
                return {**common, "reason": failed.reason, "hint": failed.hint}
