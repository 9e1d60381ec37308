"""A workflow fans out: steps that need nothing of each other run side by side, each in a sandboxed process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.demo.stage import DemoCommand, DemoStage, Shown
from ratchet.flowkit.graph import dependencies, waves
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.ledger import Event, Step
from ratchet.ledger.runs import get_run, list_steps
from ratchet.research.views.markup import Markup, joined, tag
from ratchet.research.views.plot import Scale
from ratchet.workflows.files import read_file
from ratchet.workflows.runs import prepare, read_outputs, start_workflow

_WIDTH, _LEFT, _RIGHT = 760.0, 84.0, 24.0
_ROW, _BAR_TALL, _BOTTOM = 24.0, 16.0, 34.0


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A step from its begin to its end, in milliseconds of the run."""

    name: str
    begin: float
    end: float


def draw_timeline(bars: Sequence[TimelineBar]) -> Markup:
    shown = sorted(bars, key=lambda bar: (bar.begin, bar.end))
    across = Scale(0.0, max((bar.end for bar in shown), default=0.0) or 1.0, _LEFT, _WIDTH - _RIGHT)
    height = len(shown) * _ROW + _BOTTOM
    parts = [part for at, bar in enumerate(shown) for part in _bar(at, bar, across)]
    svg = tag(
        "svg",
        joined([*_axis(across, height), *parts]),
        class_="plot small",
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        role="img",
        aria_label="When each step ran: bars above each other ran at the same time",
        xmlns="http://www.w3.org/2000/svg",
    )
    return tag("div", svg, class_="wide")


def _bar(at: int, bar: TimelineBar, across: Scale) -> list[Markup]:
    y = 8 + at * _ROW
    title = tag("title", f"{bar.name}: {bar.end - bar.begin:,.0f} ms")
    start, end = across(bar.begin), across(bar.end)
    return [
        tag("text", bar.name, x=_LEFT - 10, y=y + 13, text_anchor="end", class_="ink"),
        tag("rect", title, x=start, y=y, width=max(2.0, end - start), height=_BAR_TALL, rx=4, class_="bar"),
    ]


def _axis(across: Scale, height: float) -> list[Markup]:
    parts = []
    for value in across.ticks(6):
        x = across(value)
        parts.append(tag("line", x1=x, x2=x, y1=4, y2=height - _BOTTOM + 4, class_="tick"))
        parts.append(tag("text", f"{value / 1000:g} s", x=x, y=height - 10, text_anchor="middle"))
    return parts


_BOX, _TALL, _ACROSS, _DOWN, _MARGIN = 128.0, 40.0, 70.0, 12.0, 14.0


def draw_graph(
    waves: Sequence[Sequence[str]], needs: Mapping[str, frozenset[str]], took: Mapping[str, float]
) -> Markup:
    """`took` is how long each step ran, in milliseconds."""
    most = max(map(len, waves))
    height = most * (_TALL + _DOWN) - _DOWN + 2 * _MARGIN
    places = {
        name: (_MARGIN + column * (_BOX + _ACROSS), _top(row, len(wave), height))
        for column, wave in enumerate(waves)
        for row, name in enumerate(wave)
    }
    lines = [_line(places[one], places[name]) for name, others in needs.items() for one in sorted(others)]
    boxes = [_box(name, place, took.get(name, 0.0)) for name, place in places.items()]
    width = len(waves) * (_BOX + _ACROSS) - _ACROSS + 2 * _MARGIN
    svg = tag(
        "svg",
        joined([*lines, *boxes]),
        class_="plot small",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label="The steps of the workflow, and which needs which",
        xmlns="http://www.w3.org/2000/svg",
    )
    return tag("div", svg, class_="wide")


def _top(row: int, rows: int, height: float) -> float:
    """Columns stand in the middle."""
    return (height - rows * (_TALL + _DOWN) + _DOWN) / 2 + row * (_TALL + _DOWN)


def _line(start: tuple[float, float], end: tuple[float, float]) -> Markup:
    x1, y1 = start[0] + _BOX, start[1] + _TALL / 2
    x2, y2 = end[0], end[1] + _TALL / 2
    middle = (x1 + x2) / 2
    return tag(
        "path",
        d=f"M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}",
        class_="edge",
    )


def _box(name: str, place: tuple[float, float], took: float) -> Markup:
    x, y = place
    middle = x + _BOX / 2
    return joined(
        [
            tag("rect", x=x, y=y, width=_BOX, height=_TALL, rx=7, class_="box"),
            tag("text", name, x=middle, y=y + 17, text_anchor="middle", class_="ink"),
            tag("text", f"{took:,.0f} ms", x=middle, y=y + 32, text_anchor="middle"),
        ]
    )


_FILE = Path(__file__).parent / "collatz.yaml"
_LIMIT, _PARTS = 120_000, 6


@dataclass(frozen=True, slots=True)
class _Done:
    """A run that has ended: when each step began and ended, in milliseconds of the run, and how many were not run."""

    run_id: int
    bars: tuple[TimelineBar, ...]
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


def act(stage: DemoStage) -> Shown:
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


def _run(stage: DemoStage, spec: WorkflowSpec, which: str, hear: Callable[[Event], None]) -> _Done:
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


def _tell(stage: DemoStage, event: Event) -> None:
    if event.type == "step.completed":
        stage.say(f"{event.data['name']} is done")


def _bars(steps: list[Step]) -> tuple[TimelineBar, ...]:
    """Each step where it ended, as long as it took: rows are written a little later than things happen."""
    ends = [(step, step.ended_at or step.updated_at, _took(step)) for step in steps]
    zero = min((ended - took for _, ended, took in ends), default=0.0)
    return tuple(TimelineBar(step.name, ended - took - zero, ended - zero) for step, ended, took in ends)


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
            DemoCommand(f"ratchet workflow show {first.run_id}", "the run with every step"),
            DemoCommand(
                f"ratchet workflow profile {first.run_id}", "where the time went, and the critical path"
            ),
            DemoCommand(f"ratchet events --run {first.run_id}", "all that happened"),
        ),
        pictures=(draw_graph(turns, dependencies(spec), took), draw_timeline(first.bars)),
        quotes={"The question": spec.description, "The answer": answer},
    )
