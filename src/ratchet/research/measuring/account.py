"""What is known of one measurement while it is taken: what ran, where, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.judges.endings import described
from ratchet.judges.trial import Ran
from ratchet.research.measuring.recipe import Recipe
from ratchet.sandbox import Finished

_TAIL = 4096
_SHORT_TAIL = 1024


@dataclass(slots=True)
class Account:
    """`commands` says that the trial is a command and not a function, `has_run` that it has come to an end before.

    `roots` are where the recipe was seen. `place` is the directory for what the trial leaves; `no_room` says that its
    disk was full by no fault of the trial.
    """

    recipe: Recipe
    commands: bool
    has_run: bool = False
    slot: str = ""
    rans: list[Ran] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    place: Path | None = None
    no_room: bool = False

    def facts(
        self, *, failed: Finished | None = None, evaluator: Finished | None = None, well: bool = False
    ) -> dict[str, Any]:
        """For the record. Of what went well only little is shown."""
        ends = [ran.finished for ran in self.rans] + ([] if failed is None else [failed])
        tail = _SHORT_TAIL if well else _TAIL
        return {
            "slot": self.slot,
            "trials": [described(each, tail=tail) for each in ends],
            "evaluator": None if evaluator is None else described(evaluator, tail=tail),
        }
