"""How long an idle worker takes to start a job."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import tally
from benchmarks.contenders import HUEY, RATCHET, RQ, Contender
from benchmarks.result import Goal, Result
from benchmarks.sample import percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Child, Stage

_PAUSE_SECONDS = (0.05, 0.25)
_GOALS_MS = {"another process": 100, "same process": 20}


@dataclass(frozen=True, slots=True)
class Line:
    """A client and an idle worker."""

    contender: Contender
    where: str
    client: Child
    stamps: Path

    def send(self) -> None:
        self.client.ask("enqueue_stamp")

    def wait_for(self, wanted: int, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while len(tally.stamps(self.stamps)) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.contender.title}: a job was not started in {seconds:g} s")
            time.sleep(0.01)


def measure(stage: Stage, scale: Scale) -> Result:
    lines = [*_lines_apart(stage), *_lines_within(stage)]
    for line in lines:  # the first job waits for the worker to be there
        line.send()
        line.wait_for(1)
    for number in range(scale.stamps):
        for line in random.sample(lines, len(lines)):
            time.sleep(random.uniform(*_PAUSE_SECONDS) / len(lines))
            line.send()
        for line in lines:
            line.wait_for(number + 2)
    found = {(line.contender.title, line.where): tally.stamps(line.stamps)[1:] for line in lines}
    result = Result(
        "latency",
        f"from enqueue to start on an idle worker, {scale.stamps} jobs at random times",
        ["ms", "where", "p50", "p95", "max", "p50, to RQ"],
        numbers={f"{title}, {where}": values for (title, where), values in found.items()},
    )
    base = percentile(found[RQ.title, "another process"], 0.5)
    for line in lines:
        values = found[line.contender.title, line.where]
        middle = percentile(values, 0.5)
        cells = (middle, percentile(values, 0.95), max(values))
        result.rows.append(
            [
                line.contender.title,
                line.where,
                *(f"{value:.1f}" for value in cells),
                ratio(middle, base),
            ]
        )
        if line.contender in RATCHET:
            limit = _GOALS_MS[line.where]
            goal = f"{line.contender.title}, {line.where}: p50 under {limit} ms"
            result.goals.append(Goal(goal, f"{middle:.1f} ms", middle < limit))
    result.notes.append("from just before the enqueuing transaction to the first line of the handler")
    return result


def _lines_apart(stage: Stage) -> list[Line]:
    lines = []
    for contender in [*RATCHET, RQ, HUEY]:
        place = contender.place(stage)
        stamps = stage.new_directory("stamps") / "stamps"
        client = stage.start_side("client", contender.side, place, stamps)
        client.ask("finished")
        stage.start_side("worker", contender.side, place, stamps)
        lines.append(Line(contender, "another process", client, stamps))
    return lines


def _lines_within(stage: Stage) -> list[Line]:
    lines = []
    for contender in RATCHET:
        stamps = stage.new_directory("stamps") / "stamps"
        both = stage.start_side("both", contender.side, contender.place(stage), stamps)
        lines.append(Line(contender, "same process", both, stamps))
    return lines
