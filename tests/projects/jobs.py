"""Doing jobs of a runtime in this process, without a worker: at once, and with deaths where a test wants them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from ratchet.kernel import RunStatus, Waiting
from ratchet.ledger import Transaction
from ratchet.ledger import events as log
from ratchet.ledger.events import Event, EventFilter
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.runs import get_run
from ratchet.projects.onboarding import set_up
from ratchet.projects.registration import register_project
from ratchet.runtime import JobContext, Runtime
from ratchet.runtime.processes import register as register_process

_PROCESS = "test"


class Died(BaseException):
    """The process is gone: nothing of it runs after this."""


class Mortal(JobContext):
    """A delivery whose process dies at its nth write: just before it is committed, or just after."""

    writes_left: int | None = None
    after_commit = False

    @contextlib.contextmanager
    def write(self) -> Iterator[Transaction]:
        if self.writes_left is not None:
            self.writes_left -= 1
        with super().write() as tx:
            yield tx
            if self.writes_left == 0 and not self.after_commit:
                raise Died
        if self.writes_left == 0:
            raise Died


def take(runtime: Runtime) -> Mortal | None:
    """The next job that is ready, in the hands of this process."""
    with runtime.ledger.write() as tx:
        register_process(tx, _PROCESS, "worker", 1)
        jobs = runtime.jobs.claim(tx, _PROCESS, 1)
    return Mortal(runtime, jobs[0], _PROCESS) if jobs else None


def finish(runtime: Runtime, job: JobContext) -> None:
    with runtime.ledger.write() as tx:
        runtime.jobs.finish(tx, job.job, None)


def do_all(runtime: Runtime) -> None:
    """Do what lies ready, until nothing does."""
    while (job := take(runtime)) is not None:
        assert job.job.kind == "project_setup"
        with contextlib.suppress(Waiting):
            asyncio.run(set_up(job))
        finish(runtime, job)


def register(runtime: Runtime, **values: object) -> int:
    with runtime.ledger.write(actor="test") as tx:
        return register_project(tx, runtime, **{"name": "demo", **values})  # type: ignore[arg-type]


def onboard(runtime: Runtime, **values: object) -> Project:
    """A project that is set up as far as it goes by itself."""
    project_id = register(runtime, **values)
    do_all(runtime)
    return project_of(runtime, project_id)


def project_of(runtime: Runtime, project_id: int) -> Project:
    with runtime.ledger.read() as tx:
        return get_project(tx, project_id)


def setup_status(runtime: Runtime, project: Project) -> RunStatus:
    assert project.setup_run_id is not None
    with runtime.ledger.read() as tx:
        return get_run(tx, project.setup_run_id).status


def told(runtime: Runtime, project_id: int) -> list[Event]:
    """Every event of a project, oldest first."""
    with runtime.ledger.read() as tx:
        return log.since(tx.connection, where=EventFilter(project_id=project_id), limit=1000)


def types(runtime: Runtime, project_id: int) -> list[str]:
    return [event.type for event in told(runtime, project_id)]
