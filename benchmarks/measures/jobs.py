"""Jobs that do nothing: how many per second can be added and done."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

from benchmarks import tally
from benchmarks.contenders import HUEY_TUNED, RATCHET, RQ, RQ_FORKING, Contender
from benchmarks.result import Result
from benchmarks.sample import Spread, cpu_seconds, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Child, Stage

CONTENDERS = [*RATCHET, RQ, RQ_FORKING, HUEY_TUNED]
_STUCK_SECONDS = 30.0

Samples = dict[str, dict[str, list[float]]]


def measure(stage: Stage, scale: Scale) -> Result:
    samples: Samples = defaultdict(lambda: defaultdict(list))
    for _ in range(scale.repeats):
        for contender in CONTENDERS:
            _once(stage, contender, scale, samples[contender.title])
    result = Result(
        "jobs",
        f"{scale.jobs} jobs that do nothing, added by one process and done by others",
        [
            "jobs/s",
            "add one by one",
            "add together",
            "do, 1 worker",
            "do, 2 workers",
            "CPU ms/job",
            "1 worker, to RQ",
        ],
        numbers={title: dict(found) for title, found in samples.items()},
    )
    base = Spread.of(samples[RQ.title]["one worker"]).median
    for contender in CONTENDERS:
        found = {name: Spread.of(values) for name, values in samples[contender.title].items()}
        result.rows.append(
            [
                contender.title,
                found["one by one"].show(),
                found["together"].show() if contender.together else "–",
                found["one worker"].show(),
                found["two workers"].show(),
                found["cpu"].show(2),
                ratio(found["one worker"].median, base),
            ]
        )
    result.notes.append(
        "middle (lowest–highest); the rate of doing is from the first job to the last; CPU is that of the one worker's"
        " process (and its forks), without the database server's"
    )
    return result


def _once(stage: Stage, contender: Contender, scale: Scale, samples: dict[str, list[float]]) -> None:
    count = scale.forked_jobs if contender.forking else scale.jobs
    place = contender.place(stage)
    client = stage.start_side("client", contender.side, place, stage.directory / "unused")
    client.ask("finished")  # imports and connections are not what is measured
    try:
        samples["one by one"].append(count / client.ask("enqueue", count=count)["seconds"])
        rate, cpu = _done_by(stage, contender, place, 1, count)
        samples["one worker"].append(rate)
        samples["cpu"].append(cpu)
        if contender.together:
            samples["together"].append(count / client.ask("enqueue_together", count=count)["seconds"])
        else:
            client.ask("enqueue", count=count)
        samples["two workers"].append(_done_by(stage, contender, place, 2, count)[0])
        _check_finished(client, contender, 2 * count)
    finally:
        client.stop()


def _done_by(
    stage: Stage, contender: Contender, place: dict[str, str], workers: int, count: int
) -> tuple[float, float]:
    """Jobs per second from the first to the last, and CPU milliseconds per job."""
    ticks = stage.new_directory("tally") / "ticks"
    children = [stage.start_side("worker", contender.side, place, ticks) for _ in range(workers)]
    try:
        first = _reached(ticks, 1, children)
        began, used = time.monotonic(), sum(cpu_seconds(child.pid) for child in children)
        _reached(ticks, count, children)
        seconds = time.monotonic() - began
        used = sum(cpu_seconds(child.pid) for child in children) - used
    finally:
        for child in children:
            child.stop()
    # A few may have been done before the first was noticed.
    return (count - first) / seconds, used / (count - first) * 1000


def _reached(ticks: Path, wanted: int, children: list[Child]) -> int:
    seen, deadline = tally.count(ticks), time.monotonic() + _STUCK_SECONDS
    while seen < wanted:
        time.sleep(0.002)
        now = tally.count(ticks)
        if now > seen:
            seen, deadline = now, time.monotonic() + _STUCK_SECONDS
        elif time.monotonic() > deadline or not all(child.alive for child in children):
            raise RuntimeError(f"{seen} of {wanted} jobs were done, then nothing more")
    return seen


def _check_finished(client: Child, contender: Contender, wanted: int) -> None:
    """A contender that says it did less, or more, than there was has not been measured but found out."""
    found = client.ask("finished")["value"]
    if found not in (-1, wanted):
        raise RuntimeError(f"{contender.title} recorded {found} finished jobs of {wanted}")
