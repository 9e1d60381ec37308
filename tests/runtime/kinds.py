"""Kinds of jobs for the tests. They speak through files, so that any process can do them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
import time
from pathlib import Path
from typing import Any

from ratchet.kernel import LedgerUnavailable, Misuse
from ratchet.projects.jobs import add_kinds as add_project_kinds
from ratchet.protocols.jobs import add_kinds as add_protocol_kinds
from ratchet.runtime import JobContext, Kinds
from ratchet.runtime.runtime import Handler
from ratchet.workflows.jobs import add_kinds as add_workflow_kinds


def mark(path: str, line: str) -> None:
    """Append a line in one write, which other processes cannot tear."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, (line + "\n").encode())
    finally:
        os.close(descriptor)


def marks(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def note(job: JobContext) -> Any:
    """Say that it started, and when."""
    mark(job.payload["file"], f"{job.job.id}:{time.time()}")
    return job.payload.get("value")


async def spell(job: JobContext) -> Any:
    """Say start and end with a pause in between."""
    mark(job.payload["file"], f"start:{job.job.id}:{job.process_id}")
    await asyncio.sleep(job.payload["seconds"])
    mark(job.payload["file"], f"end:{job.job.id}:{job.process_id}")
    return "rested"


def plain_spell(job: JobContext) -> Any:
    """The same as a plain function, which looks for a stop by itself."""
    mark(job.payload["file"], f"start:{job.job.id}:{job.process_id}")
    if job.wait(job.payload["seconds"]):
        mark(job.payload["file"], f"stopped:{job.job.id}:{job.process_id}")
        return None
    mark(job.payload["file"], f"end:{job.job.id}:{job.process_id}")
    return "rested"


def deaf(job: JobContext) -> Any:
    """A plain function that never looks for a stop."""
    time.sleep(job.payload["seconds"])
    return "late"


async def flaky(job: JobContext) -> Any:
    if job.job.attempt <= job.payload["failures"]:
        raise ValueError(f"try {job.job.attempt} fails")
    return job.job.attempt


async def starved(job: JobContext) -> Any:
    """Find the machine without room, as an error of its own that says why, or without one."""
    if job.job.delivery <= job.payload["failures"]:
        if not job.payload["errno"]:
            raise LedgerUnavailable("it did not answer")
        lacking = OSError(job.payload["errno"], os.strerror(job.payload["errno"]))
        if not job.payload["explained"]:
            raise lacking
        raise Misuse("it cannot be started") from lacking
    return job.job.attempt


async def unstorable(_: JobContext) -> Any:
    return object()


async def not_a_number(_: JobContext) -> Any:
    return float("nan")


async def huge(_: JobContext) -> Any:
    return "x" * 2_000_000


async def leaving(_: JobContext) -> Any:
    sys.exit(3)


async def dying(job: JobContext) -> Any:
    """Take the whole process along."""
    mark(job.payload["file"], str(os.getpid()))
    os._exit(9)


async def climb(job: JobContext) -> Any:
    """The flow of the loop's tests; see `tests.loop.flow`."""
    from tests.loop.flow import climb as real

    return await real(job)


async def research_run(job: JobContext) -> Any:
    """The real one, loaded only where it is needed."""
    from ratchet.research.supervisor import research_run as real

    return await real(job)


async def verification_run(job: JobContext) -> Any:
    """The real one, loaded only where it is needed."""
    from ratchet.research.verification import verification_run as real

    return await real(job)


async def change_agent(job: JobContext) -> Any:
    """The real one with an engine for tests; see `tests.agents.authors`."""
    from tests.agents.authors import change as real

    return await real(job)


async def evolve_mortally(job: JobContext) -> Any:
    """The real one, which may die at its stages; see `tests.workflows.evolution.mortal`."""
    from tests.workflows.evolution.mortal import evolve_mortally as real

    return await real(job)


async def optimise_mortally(job: JobContext) -> Any:
    from tests.workflows.evolution.mortal import optimise_mortally as real

    return await real(job)


async def plan_mortally(job: JobContext) -> Any:
    """The real one, which may die at its stages; see `tests.workflows.overseer.mortal`."""
    from tests.workflows.overseer.mortal import plan_mortally as real

    return await real(job)


async def plan_protocol_mortally(job: JobContext) -> Any:
    """The real one, which may die at its stages; see `tests.protocols.planning.carrier`."""
    from tests.protocols.planning.carrier import plan_mortally as real

    return await real(job)


# Function tools for tests, announced as an installed package announces its own.
sys.path.append(str(Path(__file__).parents[1] / "workflows" / "announced"))

MORTAL = (climb, evolve_mortally, optimise_mortally, plan_mortally, plan_protocol_mortally)
ALL = (
    note,
    spell,
    plain_spell,
    deaf,
    flaky,
    starved,
    unstorable,
    not_a_number,
    huge,
    leaving,
    dying,
    *MORTAL,
)


class MortalKinds(Kinds):
    """Kinds whose process may die behind each stage of the loop; see `tests.runtime.deaths`."""

    def add(self, name: str, handler: Handler, *, timeout_seconds: float | None = None) -> None:
        if inspect.iscoroutinefunction(handler) and handler not in ALL[: -len(MORTAL)]:
            handler = functools.partial(_carry_mortally, handler)
        super().add(name, handler, timeout_seconds=timeout_seconds)


async def _carry_mortally(handler: Handler, job: JobContext) -> Any:
    from ratchet.loop import watched
    from tests.runtime.deaths import pass_by

    with watched(lambda stage: pass_by(job.runtime.home, f"loop:{stage}")):
        return await handler(job)


def learn(job: JobContext) -> Any:
    from ratchet.agents.learning import learn as start_what_waits

    return start_what_waits(job)


def make_kinds() -> Kinds:
    kinds = MortalKinds()
    add_project_kinds(kinds)
    add_protocol_kinds(kinds)
    add_workflow_kinds(kinds)
    for handler in ALL:
        kinds.add(handler.__name__, handler)
    kinds.add("research.run", research_run)
    kinds.add("research.verify", verification_run)
    kinds.add("agents.change", change_agent)
    kinds.add("agents.learn", learn)
    return kinds
