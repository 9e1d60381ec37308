"""A run that failed is a lesson for who plans something similar."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.flowkit.execution import Executed, StepRecord
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.ledger import Run
from ratchet.ledger.runs import create_run, get_run
from ratchet.memory import Memory, open_memory
from ratchet.runtime import Kinds, Runtime, open_ledger, open_runtime
from ratchet.workflows.memory import lessons_for, remember_failed_run
from tests.runtime.worker_process import load

SPEC = WorkflowSpec("letters", "Translate letters into French", tags=("mail",))
STEPS = {
    "read": StepRecord("completed"),
    "translate[2]": StepRecord("failed", error="the model said nothing"),
    "send": StepRecord("skipped"),
}


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    loaded = load(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with open_ledger(loaded) as ledger:
        yield open_runtime(loaded, ledger, Kinds())


def run(runtime: Runtime, *, simulated: bool = False) -> Run:
    with runtime.ledger.write() as tx:
        return get_run(tx, create_run(tx, "workflow", "letters", simulated=simulated))


@contextlib.contextmanager
def remembered(runtime: Runtime) -> Iterator[Memory]:
    with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
        yield memory


@pytest.mark.soak
def test_the_step_that_failed_is_remembered_with_its_reason(runtime: Runtime) -> None:
    failed = run(runtime)
    for _ in range(2):
        remember_failed_run(runtime, failed, SPEC, Executed("failed", {}, STEPS))
    with remembered(runtime) as memory:
        [lesson] = lessons_for(memory, "Translate a letter into French")
        assert (lesson.step, lesson.problem) == ("translate[2]", "the model said nothing")
        assert lesson.workflow == "letters"
        assert len(memory.entries(tags=["mail"], scope="workflow:letters")) == 1


def test_what_did_not_fail_or_was_a_simulation_teaches_nothing(runtime: Runtime) -> None:
    remember_failed_run(runtime, run(runtime), SPEC, Executed("held", {}, {"ask": StepRecord("held")}))
    remember_failed_run(runtime, run(runtime, simulated=True), SPEC, Executed("failed", {}, STEPS))
    with remembered(runtime) as memory:
        assert memory.entries() == []


def test_a_memory_that_cannot_be_used_does_no_harm_to_the_run(runtime: Runtime) -> None:
    (runtime.home / "memory.db").write_bytes(b"this is no memory" * 1000)
    remember_failed_run(runtime, run(runtime), SPEC, Executed("failed", {}, STEPS))
    assert (runtime.home / "memory.db").read_bytes().startswith(b"this is no memory")
