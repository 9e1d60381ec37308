"""A carrier that only plans. Its process may die at a named stage, once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from ratchet.engines import Engine
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.kernel import RunStatus
from ratchet.ledger import change_run
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import get_protocol
from ratchet.projects.clone import open_clone
from ratchet.protocols.planning import PlanBlocked, PlanFailed, plan_protocol
from ratchet.runtime import JobContext
from tests.runtime.deaths import pass_by

KIND = "plan_protocol_mortally"


async def plan_mortally(job: JobContext, engine: Engine | None = None) -> str:
    """Plan the protocol of the job; without a plan it is blocked. An `engine` takes the place of every other one."""
    runtime = job.runtime
    with job.ledger.read() as tx:
        protocol = get_protocol(tx, job.run_id)
        project = get_project(tx, protocol.project_id)
    surroundings = EngineContext(runtime.settings, runtime.home, os.environ)
    opener: Callable[[str | None], Engine] = lambda name: engine or open_engine(name, surroundings)  # noqa: E731
    clone = await asyncio.to_thread(open_clone, runtime, project)
    try:
        await plan_protocol(
            job, protocol, project, clone, opener, passed=lambda stage: pass_by(runtime.home, stage)
        )
    except PlanBlocked as waiting:
        with job.write() as tx:
            tx.event("planning_blocked_clarifications", run_id=job.run_id, message=str(waiting))
            change_run(tx, job.run_id, RunStatus.BLOCKED, reason=str(waiting))
        return "blocked"
    except PlanFailed as failed:
        with job.write() as tx:
            reason = f"{failed} ({failed.hint})"
            change_run(tx, job.run_id, RunStatus.BLOCKED, expected=(RunStatus.PLANNING,), reason=reason)
        return "failed"
    finally:
        await asyncio.to_thread(clone.close)
    return "planned"
