"""A workflow fans out: steps that need nothing of each other run side by side, each in a sandboxed process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ratchet.demo.pictures.graph import draw_graph
from ratchet.demo.pictures.timeline import Bar, draw_timeline
from ratchet.demo.shown import Command, Shown
from ratchet.demo.stage import Stage
from ratchet.flowkit.graph import dependencies, waves
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.ledger import Event, Step
from ratchet.ledger.runs import get_run, list_steps
from ratchet.workflows.files import read_file
from ratchet.workflows.runs import prepare, read_outputs, start_workflow

_FILE = Path(__file__).parents[1] / "collatz.yaml"
_LIMIT, _PARTS = 120_000, 6


@dataclass(frozen=True, slots=True)
class _Done:
    """A run that has ended: when each step began and ended, in milliseconds of the run, and how many were not run."""

    run_id: int
    bars: tuple[Bar, ...]
    cached: int

    @property
    def seconds(self) -> float:
        """From the begin of the first step to the end of the last."""
        return max((bar.end for bar in self.bars), default=0.0) / 1000

    @property
    def together(self) -> int:
        """The most steps that ran at the same moment."""
        return max(sum(bar.begin <= one.begin < bar.end for bar in self.bars) for one in self.bars)

    @property
    def worked(self) -> float:
        """Seconds of all steps, one after the other."""
        return sum(bar.end - bar.begin for bar in self.bars) / 1000


def act(stage: Stage) -> Shown:
    spec = read_file(_FILE)
    turns = waves(spec)
    widest = max(turns, key=len)
    stage.say(
        f"{len(spec.steps)} steps in {len(turns)} waves; {len(widest)} of them need nothing of each other"
    )
    first = _run(stage, spec, "first", lambda event: _tell(stage, event))
    with stage.ledger.read() as tx:
        outputs = read_outputs(stage.ledger.artifacts, get_run(tx, first.run_id))
    answer = str(outputs["report"])
    stage.say(f"{answer}: {first.worked:.2f} s of steps in {first.seconds:.2f} s")
    again = _run(stage, spec, "again", lambda _: None)
    stage.say(f"again with the same inputs: {again.cached} of {len(spec.steps)} steps were known and not run")
    return _shown(spec, answer, first, again)


def _run(stage: Stage, spec: WorkflowSpec, which: str, hear: Callable[[Event], None]) -> _Done:
    # Every demo asks for something else, so that its first run finds nothing that is known.
    plan = prepare(stage.runtime, spec, {"limit": _LIMIT + _PARTS * stage.place.number})
    with stage.ledger.write(actor="demo") as tx:
        run_id = start_workflow(tx, stage.runtime, plan, once=stage.place.name(f"collatz-{which}"))
    stage.say(f"Run {run_id}: {spec.workflow_id}")
    stage.carried(run_id, hear)
    with stage.ledger.read() as tx:
        steps = list_steps(tx, run_id)
    known = sum(1 for step in steps if (step.result or {}).get("cached"))
    return _Done(run_id, _bars(steps), known)


def _tell(stage: Stage, event: Event) -> None:
    if event.type == "step.completed":
        stage.say(f"{event.data['name']} is done")


def _bars(steps: list[Step]) -> tuple[Bar, ...]:
    """Each step where it ended, as long as it took: rows are written a little later than things happen."""
    ends = [(step, step.ended_at or step.updated_at, _took(step)) for step in steps]
    zero = min((ended - took for _, ended, took in ends), default=0.0)
    return tuple(Bar(step.name, ended - took - zero, ended - zero) for step, ended, took in ends)


def _took(step: Step) -> float:
    return float((step.result or {}).get("metrics", {}).get("wall_ms") or 0.0)


def _shown(spec: WorkflowSpec, answer: str, first: _Done, again: _Done) -> Shown:
    turns, took = waves(spec), {bar.name: bar.end - bar.begin for bar in first.bars}
    widest = max(turns, key=len)
    return Shown(
        headline=f"A workflow fanned out into {len(widest)} steps, {first.together} at a time: {first.worked:.1f} s of "
        f"work took {first.seconds:.1f} s.",
        facts={
            "work in all steps": f"{first.worked:.2f} s",
            "from start to end": f"{first.seconds:.2f} s",
            "at the same time": str(first.together),
            "not run when run again": f"{again.cached} of {len(spec.steps)} steps",
        },
        real="All of it. Each step was a fresh process in a sandbox without network and with limits on memory, time "
        "and processes; its time was measured, its result was kept, and the second run used what was kept.",
        runs=(first.run_id, again.run_id),
        look=(
            Command(f"ratchet workflow show {first.run_id}", "the run with every step"),
            Command(f"ratchet workflow profile {first.run_id}", "where the time went, and the critical path"),
            Command(f"ratchet events --run {first.run_id}", "all that happened"),
        ),
        pictures=(draw_graph(turns, dependencies(spec), took), draw_timeline(first.bars)),
        quotes={"The question": spec.description, "The answer": answer},
    )
