"""A tool that is too slow is rewritten by itself after a run that used it, and the next run uses what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from ratchet.flowkit.spec import StepType, WorkflowSpec, WorkflowStep
from ratchet.ledger.runs import list_runs
from ratchet.memory import open_memory
from ratchet.runtime import Runtime, Worker, open_ledger, open_runtime
from ratchet.workflows.memory import lessons_for
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.waiting import eventually
from tests.workflows.evolution.lab import definition, settled
from tests.workflows.running.settled import run

MakeRuntime = Callable[..., Runtime]
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def make_runtime(tmp_path: Path, url: str) -> Iterator[MakeRuntime]:
    opened: list[tuple[Runtime, Worker]] = []

    def make(**flags: object) -> Runtime:
        loaded = load(tmp_path, url, **{"workflows.evolution.engine": "rewriter:direct", **flags})
        runtime = open_runtime(loaded, open_ledger(loaded), make_kinds())
        worker = Worker(runtime)
        worker.start()
        opened.append((runtime, worker))
        return runtime

    yield make
    for runtime, worker in opened:
        worker.stop(drain_seconds=0)
        runtime.ledger.close()


def adding_up(home: Path) -> WorkflowSpec:
    (home / "tools").mkdir(exist_ok=True)
    slow = definition(constraints={"target_ms": 1})
    (home / "tools" / "add-up.yaml").write_text(yaml.safe_dump(slow))
    steps = [
        WorkflowStep(
            f"s{n}", StepType.EXISTING_TOOL, tool_name="add-up", input_mapping={"n": 400_000 + n}, cache=False
        )
        for n in range(6)
    ]
    return WorkflowSpec("sums", steps=tuple(steps))


def evolutions(runtime: Runtime) -> list[int]:
    with runtime.ledger.read() as tx:
        return [each.id for each in list_runs(tx, name="evolve:add-up")]


def is_remembered(runtime: Runtime) -> bool:
    with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
        return any("add-up" in lesson.text for lesson in lessons_for(memory, "make the tool add-up better"))


@pytest.mark.soak
def test_nothing_is_rewritten_without_leave(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    assert run(runtime, adding_up(runtime.home))["status"] == "completed"
    assert evolutions(runtime) == []


@pytest.mark.soak
def test_a_slow_tool_is_rewritten_once_and_used_from_then_on(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(**{"workflows.evolution.auto": True})
    spec = adding_up(runtime.home)
    before = run(runtime, spec)
    eventually(lambda: evolutions(runtime) != [])
    [evolution] = evolutions(runtime)
    assert settled(runtime.ledger, evolution).result["promoted"]
    after = run(runtime, spec)
    assert {name: step["value"] for name, step in after["steps"].items()} == {
        name: step["value"] for name, step in before["steps"].items()
    }
    busy = [sum(step["metrics"]["cpu_ms"] for step in each["steps"].values()) for each in (before, after)]
    assert busy[1] < busy[0] / 2
    assert evolutions(runtime) == [evolution]
    eventually(lambda: is_remembered(runtime))
