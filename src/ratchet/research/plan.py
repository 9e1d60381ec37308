"""What a research run was asked to do: the spec in its row, from the start to the last restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a person may choose. What is `None` is left to the task.

    `trials`, `hours` and `hours_without_keep` are hard stops; tokens and money are budgets of the run.
    """

    engine: str | None = None
    model: str | None = None
    specialists: tuple[str, ...] = ()
    keep_policy: str | None = None
    lineage: bool = True
    parallel: int | None = None
    seed: int = 0
    trials: int | None = None
    hours: float | None = None
    hours_without_keep: float | None = None
    baseline_score: float | None = None

    def chosen(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(Choices)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Choices):
    """`task` is how it was named, `task_root` the folder that was, and `task_hash` what it held then.

    `columns` are what the task wants to see beside the score. `plain_baseline` and `known_best` are what it says others
    reach, to be shown next to the run's own best.
    """

    task: str
    task_hash: str
    task_root: str = ""
    variant: str | None = None
    columns: tuple[str, ...] = ()
    plain_baseline: str = ""
    known_best: str = ""

    @property
    def origin(self) -> Path | None:
        """The folder that the task was found in, which nobody who is measured may read."""
        return Path(self.task_root) if self.task_root else None

    def spec(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Plan:
        known = {each.name for each in fields(cls)}
        unknown = set(spec) - known
        if unknown or not {"task", "task_hash"} <= set(spec):
            raise Misuse(
                "the run was not planned by this Ratchet, so it cannot go on",
                hint="an imported run is a record; start a new one with `ratchet research run`",
            )
        lists = {name: tuple(spec.get(name, ())) for name in ("specialists", "columns")}
        return cls(**{**spec, **lists})
