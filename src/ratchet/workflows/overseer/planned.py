"""What a sentence came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ratchet.kernel import Conflict, RatchetError, RunStatus, Usage
from ratchet.ledger import Run


@dataclass(frozen=True, slots=True)
class Reused:
    """A plan that was there already: `sentence` is what it was made for, `reason` why it was taken."""

    workflow: str
    sentence: str
    likeness: float
    exact: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A saved workflow and how it came about.

    `template` is the workflow that the overseer was shown as an example, `repaired` what was wrong with plans that were
    sent back, and `notes` what did not work on the way and did not matter for the plan.
    """

    run_id: int
    workflow: str
    version: str
    hash: str
    spec: Mapping[str, Any]
    reused: Reused | None = None
    template: str | None = None
    tools_generated: tuple[str, ...] = ()
    tools_kept: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    simulated: bool = False

    @property
    def data(self) -> dict[str, Any]:
        """As the run's result: JSON, without what the run knows itself."""
        told = asdict(self)
        del told["run_id"]
        return told


class PlanFailed(RatchetError):
    """There is no workflow for the sentence. `problems` has one sentence for each thing that was wrong at last."""

    http_status = 502

    def __init__(self, run_id: int, problems: tuple[str, ...], reason: str) -> None:
        super().__init__(
            f"the plan of run {run_id} failed: {reason}",
            hint="say it in other words, name the tools to use, or use a stronger model",
        )
        self.run_id = run_id
        self.problems = problems


def planned_of(run: Run) -> Planned:
    """What a run of the overseer came to. Raises `PlanFailed`, or `Conflict` while it has not ended."""
    if run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
        problems = (run.result or {}).get("problems", ())
        raise PlanFailed(run.id, tuple(problems), run.reason or str(run.status))
    if run.status is not RunStatus.COMPLETED:
        why = f": {run.reason}" if run.reason else ""
        raise Conflict(
            f"run {run.id} is {run.status}, so there is no plan yet{why}", hint="wait for it to end"
        )
    told = dict(run.result)
    told["reused"] = None if told["reused"] is None else Reused(**told["reused"])
    told["usage"] = Usage(**told["usage"])
    for name in ("tools_generated", "tools_kept", "repaired", "notes"):
        told[name] = tuple(told[name])
    return Planned(run_id=run.id, **told)
