"""A DAG of steps that do nothing, run durably from start to end, next to other engines; whether there are barriers; and
what a step costs in a long run."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import Any

from benchmarks.chat import turn_seconds
from benchmarks.dag import (
    BRANCHES,
    IN_WAVES_SECONDS,
    LONGEST_SECONDS,
    WAIT_SECONDS,
    diamond,
    layered,
    waiting,
)
from benchmarks.peers.dags.peers import DAG_PEERS, run_dag
from benchmarks.peers.peer import Unavailable
from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, ratio
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Child, Stage, die_with_parent, place_of
from ratchet.config import load_settings
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.ledger import EventFilter, Ledger, follow
from ratchet.ledger.events import last_id
from ratchet.ledger.runs import get_run
from ratchet.runtime import Kinds, Runtime, Worker, open_ledger, open_runtime
from ratchet.workflows.jobs import add_kinds
from ratchet.workflows.runs import prepare, report_run, start_workflow

_TO_PREFECT = 10.0
_TO_LANGGRAPH = 1.0
_FLAT = 1.5
_LONGER = 1.25
_MOST_TURN_MS = 100.0
_AT_ONCE = 200
_TO_ONE = 1.5
_KEPT = "everything, {}"


def measure(stage: Stage, scale: Scale) -> Result:
    width, depth = scale.dag
    count = width * depth
    result = Result(
        "workflows",
        f"{count:,} steps in layers of {width}, each of which returns what it is given",
        ["", "seconds", "steps/s", "CPU ms/step", "to Ratchet, SQLite", "on disk"],
    )
    seconds = {}
    for database in DATABASES:
        found = _ratchet(stage, database, scale)
        result.numbers[database] = found
        seconds[database] = Spread.of([each["seconds"] for each in found["usual"]])
        cpu = Spread.of([each["cpu"] / count * 1000 for each in found["usual"]])
        kept = _KEPT.format(SHOWN[database])
        to_own = ratio(seconds[database].median, seconds["sqlite"].median)
        result.rows.append(_row(f"Ratchet, {SHOWN[database]}", seconds[database], cpu, count, to_own, kept))
        _add_shape(result, SHOWN[database], found)
    _add_waiting(stage, result)
    _add_chat(stage, scale, result)
    if stage.peers:
        _add_peers(stage, scale, result, seconds["sqlite"].median)
    else:
        result.notes.append("Prefect, LangGraph and Dask are run with --peers")
    return result


def _add_waiting(stage: Stage, result: Result) -> None:
    """Whether steps that only wait take each other's place, with the settings as they are."""
    place = {**place_of(stage.new_home("sqlite")), "workflows.concurrency": 0}
    child = stage.start([sys.executable, "-m", "benchmarks.measures.workflows", json.dumps(place)])
    try:
        child.ask("waiting", count=1)
        one, many = (child.ask("waiting", count=count) for count in (1, _AT_ONCE))
    finally:
        child.stop()
    result.numbers["waiting"] = {"one": one, "many": many}
    times = many["seconds"] / one["seconds"]
    result.goals.append(
        Goal(
            f"{_AT_ONCE} sandboxed steps at once that wait {WAIT_SECONDS:g} s within {_TO_ONE}× of one",
            f"{one['seconds']:.2f} → {many['seconds']:.2f} s, {times:.2f}×",
            times <= _TO_ONE,
        )
    )


def _add_chat(stage: Stage, scale: Scale, result: Result) -> None:
    """What a turn of the chat costs beside the model: one that plans, and runs a step that asks a model."""
    took, model = turn_seconds(stage.new_directory("chat"), 5 * scale.starts)
    own = Spread.of([each - model / len(took) for each in took])
    result.numbers["chat"] = took
    result.goals.append(
        Goal(
            f"a turn of the chat, planned and run, within {_MOST_TURN_MS:g} ms beside the model",
            f"{own.median * 1000:.0f} ms",
            own.median * 1000 <= _MOST_TURN_MS,
        )
    )


def _row(title: str, seconds: Spread, cpu: Spread, count: int, times: str, kept: str) -> list[str]:
    rate = f"{count / seconds.median:,.0f}"
    return [title, seconds.show(2), rate, cpu.show(2), times, kept]


def _add_shape(result: Result, shown: str, found: dict[str, Any]) -> None:
    """Whether branches wait for each other, and whether a step costs more among many."""
    times = found["diamond"]["seconds"] / LONGEST_SECONDS
    waves = IN_WAVES_SECONDS / LONGEST_SECONDS
    result.goals.append(
        Goal(
            f"{shown}: a diamond with branches of {len(BRANCHES)} lengths within {_LONGER}× of its longest path",
            f"{times:.2f}×, where waves would take {waves:.2f}×",
            times <= _LONGER,
        )
    )
    few, many = found["few"], found["many"]
    each = [one["cpu"] / one["steps"] * 1000 for one in (few, many)]
    flat = each[1] / each[0]
    result.goals.append(
        Goal(
            f"{shown}: CPU of a step among {many['steps']:,} within {_FLAT}× of one among {few['steps']:,}",
            f"{each[0]:.2f} → {each[1]:.2f} ms",
            flat <= _FLAT,
        )
    )
    walls = [one["seconds"] / one["steps"] * 1000 for one in (few, many)]
    result.notes.append(
        f"{shown}: wall time per step {walls[0]:.2f} ms among {few['steps']:,} steps, {walls[1]:.2f} ms among "
        f"{many['steps']:,}"
    )


def _add_peers(stage: Stage, scale: Scale, result: Result, own_seconds: float) -> None:
    width, depth = scale.dag
    count = width * depth
    for peer in DAG_PEERS:
        try:
            found = [run_dag(stage, peer, width, depth) for _ in range(scale.repeats)]
        except Unavailable as why:
            result.rows.append([peer.title, "not run", *["–"] * (len(result.columns) - 2)])
            result.notes.append(f"{peer.title} was not run: {why}")
            result.numbers[peer.name] = {"unavailable": str(why)}
            continue
        result.numbers[peer.name] = [dataclasses.asdict(each) for each in found]
        seconds = Spread.of([each.seconds for each in found])
        cpu = Spread.of([each.cpu_seconds / count * 1000 for each in found])
        times = ratio(seconds.median, own_seconds)
        result.rows.append(_row(peer.title, seconds, cpu, count, times, peer.keeps))
        wanted = {"prefect": _TO_PREFECT, "langgraph": _TO_LANGGRAPH}.get(peer.name)
        if wanted is not None:
            goal = f"Ratchet on SQLite at least {wanted:.0f}× as fast as {peer.title}"
            result.goals.append(Goal(goal, times, seconds.median / own_seconds >= wanted))
    result.notes += [
        "Dask keeps nothing on disk, so a run that is killed is lost; Prefect keeps the states of tasks and not their "
        "values, unless it is told to",
        "LangGraph works in supersteps and writes its checkpoints while it runs, as shipped; building its graph is "
        "not counted",
        "CPU is that of the process and, for a peer, of all that it started; not that of a database server",
    ]


def _ratchet(stage: Stage, database: str, scale: Scale) -> dict[str, Any]:
    place = place_of(stage.new_home(database))
    child = stage.start([sys.executable, "-m", "benchmarks.measures.workflows", json.dumps(place)])
    try:
        _dag(child, (2, 2))
        usual = [_dag(child, scale.dag) for _ in range(scale.repeats)]
        few, many = _dag(child, (10, 10)), _dag(child, scale.long_dag)
        found: dict[str, Any] = {"usual": usual, "few": few, "many": many}
        child.ask("diamond")
        return {**found, "diamond": child.ask("diamond")}
    finally:
        child.stop()


def _dag(child: Child, shape: tuple[int, int]) -> dict[str, Any]:
    width, depth = shape
    return {**child.ask("dag", width=width, depth=depth), "steps": width * depth}


def main() -> None:
    """The process that runs workflows, with a worker in it as a command in the foreground has."""
    die_with_parent()
    # Branches that only sleep need no processor each.
    loaded = load_settings({"workflows.concurrency": 8, **json.loads(sys.argv[1])}, env={})
    kinds = Kinds()
    add_kinds(kinds)
    ledger = open_ledger(loaded)
    runtime = open_runtime(loaded, ledger, kinds)
    Worker(runtime).start()
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "waiting":
            answer = _run(ledger, runtime, waiting(asked["count"]), {})
            del answer["outputs"]
        elif asked["do"] == "diamond":
            answer = _run(ledger, runtime, diamond(), {})
        else:
            inputs = {f"column_{column}": column for column in range(asked["width"])}
            answer = _run(ledger, runtime, layered(asked["width"], asked["depth"]), inputs)
            if answer.pop("outputs") != inputs:
                raise RuntimeError(f"the workflow gave something else than went in: {answer}")
        print(json.dumps(answer), flush=True)


def _run(ledger: Ledger, runtime: Runtime, spec: WorkflowSpec, inputs: dict[str, Any]) -> dict[str, Any]:
    """From a workflow that nobody has looked at to the end of its run."""
    with ledger.read() as tx:
        after = last_id(tx.connection)
    began, cpu = time.monotonic(), time.process_time()
    plan = prepare(runtime, spec, inputs)
    with ledger.write(actor="bench") as tx:
        run_id = start_workflow(tx, runtime, plan)
    for _event in follow(ledger, after, where=EventFilter(run_id=run_id, type="run.*")):
        with ledger.read() as tx:
            if get_run(tx, run_id).status.stands:
                break
    ended, used = time.monotonic(), time.process_time()
    with ledger.read() as tx:
        report = report_run(tx, ledger.artifacts, run_id)
    if report["status"] != "completed":
        raise RuntimeError(f"the workflow is {report['status']}: {report['error']}")
    return {"seconds": ended - began, "cpu": used - cpu, "outputs": report["outputs"]}


if __name__ == "__main__":
    main()
