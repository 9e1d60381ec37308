"""A protocol in the ledger whose steps are wherever a test needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger import EventFilter, Ledger, Transaction, change_run, change_step
from ratchet.ledger.events import Event, since
from ratchet.ledger.projects import add_project
from ratchet.ledger.protocols import (
    ProtocolStep,
    add_protocol,
    add_protocol_steps,
    change_protocol_step,
    list_protocol_steps,
)
from ratchet.ledger.runs import create_run
from ratchet.protocols.loops import LoopDecision, apply_loop
from ratchet.protocols.policies import TriggerDecision, apply_triggers

_WAYS: Mapping[str, tuple[StepStatus, ...]] = {
    "pending": (),
    "running": (StepStatus.RUNNING,),
    "needs_qa": (StepStatus.RUNNING, StepStatus.NEEDS_QA),
    "completed": (StepStatus.RUNNING, StepStatus.COMPLETED),
    "failed": (StepStatus.RUNNING, StepStatus.FAILED),
    "blocked": (StepStatus.BLOCKED,),
    "cancelled": (StepStatus.CANCELLED,),
}


@dataclass(frozen=True)
class Scene:
    ledger: Ledger
    run_id: int

    def step(self, index: int) -> ProtocolStep:
        return self.steps()[index]

    def steps(self) -> list[ProtocolStep]:
        with self.ledger.read() as tx:
            return list_protocol_steps(tx, self.run_id)

    def statuses(self) -> list[str]:
        return [str(step.status) for step in self.steps()]

    def state(self, index: int) -> dict[str, Any]:
        return dict(self.step(index).runtime_state or {})

    def events(self, family: str) -> list[Event]:
        """Those whose type starts so, oldest first."""
        with self.ledger.read() as tx:
            found = since(tx.connection, where=EventFilter(run_id=self.run_id), limit=1000)
        return [event for event in found if event.type.startswith(family)]

    def told(self, family: str) -> list[str]:
        return [event.type for event in self.events(family)]

    def change(self, index: int, **values: Any) -> None:
        with self.ledger.write() as tx:
            change_protocol_step(tx, self.step(index).step_id, **values)

    def move(self, index: int, *way: StepStatus) -> None:
        with self.ledger.write() as tx:
            walk(tx, self.step(index), way)

    def loop(self, index: int, reason: str = "qa_failed") -> LoopDecision | None:
        with self.ledger.write() as tx:
            return apply_loop(tx, self.step(index), reason)

    def trigger(self, index: int, reason: str = "qa_passed", *, max_depth: int = 3) -> TriggerDecision | None:
        with self.ledger.write() as tx:
            return apply_triggers(tx, self.step(index), reason, max_depth=max_depth)


def make_scene(
    ledger: Ledger,
    statuses: Sequence[str],
    policies: Mapping[int, Any] | None = None,
    states: Mapping[int, Any] | None = None,
    agents: Sequence[str] = ("a", "b", "c", "d", "e"),
) -> Scene:
    """A running protocol with a step in each status, called `00-a`, `01-b` and so on."""
    with ledger.write() as tx:
        project_id = add_project(tx, "demo")
        run_id = create_run(tx, "protocol", "0001-demo", project_id=project_id)
        add_protocol(tx, run_id, project_id, "0001-demo", base_branch="main")
        change_run(tx, run_id, RunStatus.RUNNING)
        rows = [
            {
                "name": f"{index:02d}-{agents[index]}",
                "step_index": index,
                "step_type": "work",
                "policy": (policies or {}).get(index),
                "runtime_state": (states or {}).get(index),
            }
            for index in range(len(statuses))
        ]
        add_protocol_steps(tx, run_id, rows)
        for step, status in zip(list_protocol_steps(tx, run_id), statuses, strict=True):
            walk(tx, step, _WAYS[status])
    return Scene(ledger, run_id)


def walk(tx: Transaction, step: ProtocolStep, way: Sequence[StepStatus]) -> None:
    for status in way:
        change_step(tx, step.step_id, status)


def loop(module_id: str = "again", **more: Any) -> dict[str, Any]:
    return {"module_id": module_id, "behavior": "loop", **more}


def trigger(agent: str, module_id: str = "handoff", **more: Any) -> dict[str, Any]:
    return {"module_id": module_id, "behavior": "trigger", "trigger_agent_id": agent, **more}
