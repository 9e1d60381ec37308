"""A protocol whose steps wait for CI, without anybody who works on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ratchet.forges import CheckState, ForgeEvent, ForgeEventKind
from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger import EventFilter, change_run, change_step
from ratchet.ledger.events import Event, latest
from ratchet.ledger.projects import add_project, get_project
from ratchet.ledger.protocols import (
    Protocol,
    ProtocolStep,
    add_protocol_steps,
    change_protocol,
    change_protocol_step,
    get_protocol,
    list_protocol_steps,
)
from ratchet.protocols.actions import create_protocol
from ratchet.protocols.webhooks import TakenDelivery, take_delivery
from ratchet.runtime import Job, Runtime, list_jobs

FIRST, SECOND = "1" * 40, "2" * 40
NAME = "0007-login"
REMOTE = "github.com/acme/demo"


@dataclass
class Waiting:
    """One protocol of one project, and the deliveries that reach it."""

    runtime: Runtime
    project_id: int
    run_id: int
    sent: int = 0

    @property
    def protocol(self) -> Protocol:
        with self.runtime.ledger.read() as tx:
            return get_protocol(tx, self.run_id)

    @property
    def steps(self) -> list[ProtocolStep]:
        with self.runtime.ledger.read() as tx:
            return list_protocol_steps(tx, self.run_id)

    @property
    def statuses(self) -> list[StepStatus]:
        return [each.status for each in self.steps]

    @property
    def events(self) -> list[str]:
        return [each.type for each in reversed(self.all_events)]

    @property
    def all_events(self) -> list[Event]:
        with self.runtime.ledger.read() as tx:
            return latest(tx.connection, where=EventFilter(run_id=self.run_id), limit=500)

    @property
    def jobs(self) -> list[Job]:
        with self.runtime.ledger.read() as tx:
            return list_jobs(tx, run_id=self.run_id)

    def take(self, event: ForgeEvent, **more: Any) -> TakenDelivery:
        with self.runtime.ledger.write(actor="test") as tx:
            return take_delivery(tx, self.runtime, get_project(tx, self.project_id), event, **more)

    def check(
        self, state: CheckState, commit: str | None = FIRST, *, name: str = "test", **more: Any
    ) -> TakenDelivery:
        """CI says something about a commit."""
        return self.take(self.said(state, commit, name=name, **more))

    def said(
        self, state: CheckState, commit: str | None = FIRST, *, name: str = "test", **more: Any
    ) -> ForgeEvent:
        self.sent += 1
        values = {"delivery": f"d-{self.sent}", "branches": (NAME,), "outcome": str(state), **more}
        return ForgeEvent(
            "github",
            name="check_run",
            kind=ForgeEventKind.CHECK,
            commit=commit,
            check=name,
            state=state,
            **values,
        )

    def pull_request(self, **more: Any) -> TakenDelivery:
        """Somebody does something with the pull request."""
        self.sent += 1
        values: dict[str, Any] = {"provider": "github", "name": "pull_request", "branches": (NAME,), **more}
        return self.take(ForgeEvent(delivery=f"d-{self.sent}", kind=ForgeEventKind.PULL_REQUEST, **values))

    def change_step(self, index: int, **values: Any) -> None:
        with self.runtime.ledger.write(actor="test") as tx:
            change_protocol_step(tx, self.steps[index].step_id, **values)

    def change(self, **values: Any) -> None:
        with self.runtime.ledger.write(actor="test") as tx:
            change_protocol(tx, self.run_id, **values)

    def move(self, *statuses: RunStatus) -> None:
        with self.runtime.ledger.write(actor="test") as tx:
            for status in statuses:
                change_run(tx, self.run_id, status)


def make_waiting(
    runtime: Runtime,
    *commits: str | None,
    required: list[str] | None = None,
    name: str = NAME,
    project_id: int | None = None,
    automatic: bool = False,
    qa: str = "full",
    **more: Any,
) -> Waiting:
    """A running protocol with a step for each commit, all of which wait for CI, and one more that is pending."""
    with runtime.ledger.write(actor="test") as tx:
        if project_id is None:
            facts = {} if required is None else {"required_checks": required}
            project_id = add_project(tx, "demo", remote=REMOTE, facts=facts)
        run_id = create_protocol(tx, runtime, project_id, name, automatic=automatic, **more)
        rows = [
            {
                "name": f"{index:02d}-step",
                "step_index": index,
                "step_type": "work",
                "spec": {"qa": {"policy": qa}},
            }
            for index in range(len(commits) + 1)
        ]
        numbers = add_protocol_steps(tx, run_id, rows)
        change_run(tx, run_id, RunStatus.RUNNING)
        for number, commit in zip(numbers, commits, strict=False):
            change_step(tx, number, StepStatus.RUNNING)
            change_step(tx, number, StepStatus.NEEDS_QA)
            change_protocol_step(tx, number, commit=commit, awaits_ci=True)
        known = [each for each in commits if each is not None]
        change_protocol(tx, run_id, pushed=known[-1] if known else None)
    return Waiting(runtime, project_id, run_id)
