"""Looking whether those who plan, carry out and review a protocol could work, before anything is paid for."""

from __future__ import annotations

import os

from ratchet.engines.engine import Failure
from ratchet.engines.preflight import NotReady, require_engines
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocol_steps import ProtocolStep, get_protocol_step, list_protocol_steps
from ratchet.ledger.protocols import Protocol, get_protocol
from ratchet.protocols.allowing import check_resume, check_run, check_start, latest_stopped, next_step
from ratchet.protocols.choosing import Choice, choose, choose_planner, choose_usual
from ratchet.protocols.qa.reviewer import require_reviewer
from ratchet.protocols.stream import Blocked
from ratchet.runtime import Runtime

UNDER_WAY = (RunStatus.PLANNING, RunStatus.RUNNING)
"""One whose process was killed still counts as this."""


def check_new(
    runtime: Runtime, *, engine: str | None = None, model: str | None = None, reviewer: str | None = None
) -> None:
    """For a protocol that is still to be made; `reviewer` is an engine that is named. Raises `NotReady`."""
    settings = runtime.settings.protocols
    author = Choice(engine or settings.engine, model or settings.models.exec)
    wanted = [
        (settings.planner, settings.models.planning),
        (author.engine, author.model),
        *([(reviewer, settings.models.qa)] if reviewer else []),
    ]
    require_engines(runtime, wanted)
    if reviewer is None:
        _require_reviewer(runtime, author=author)


def check_existing(runtime: Runtime, run_id: int) -> None:
    """For one that is about to be started. Raises `NotReady`, and `Conflict` when it cannot be started."""
    protocol, project, steps = _read(runtime, run_id)
    check_start(protocol, steps)
    _check_rest(runtime, protocol, project, steps)


def check_resumed(runtime: Runtime, run_id: int) -> None:
    """For one that was paused, blocked or cut off. Raises `NotReady`, and `Conflict` when it has ended."""
    protocol, project, steps = _read(runtime, run_id)
    if protocol.status not in UNDER_WAY:
        check_resume(protocol)
    _check_rest(runtime, protocol, project, steps)


def check_step(runtime: Runtime, step_id: int) -> None:
    """For one step that is about to be run, or run again. Raises `NotReady`, and `Conflict` when it cannot run."""
    with runtime.ledger.read() as tx:
        step = get_protocol_step(tx, step_id)
    protocol, project, _ = _read(runtime, step.run_id)
    check_run(protocol, step)
    chosen = choose(runtime.settings, project, protocol, step)
    require_engines(runtime, [(chosen.engine, chosen.model)])


def check_next(runtime: Runtime, run_id: int) -> None:
    """`check_step` for the first step that can run. Raises `NotFound` when there is none."""
    protocol, _, steps = _read(runtime, run_id)
    check_step(runtime, next_step(protocol, steps).step_id)


def check_retried(runtime: Runtime, run_id: int) -> None:
    """`check_step` for the last step that failed or is blocked. Raises `NotFound` when there is none."""
    protocol, _, steps = _read(runtime, run_id)
    check_step(runtime, latest_stopped(protocol, steps).step_id)


def _read(runtime: Runtime, run_id: int) -> tuple[Protocol, Project, list[ProtocolStep]]:
    with runtime.ledger.read() as tx:
        protocol = get_protocol(tx, run_id)
        return protocol, get_project(tx, protocol.project_id), list_protocol_steps(tx, run_id)


def _check_rest(runtime: Runtime, protocol: Protocol, project: Project, steps: list[ProtocolStep]) -> None:
    settings = runtime.settings
    if steps:
        # Without `automatic` each waits for a person; what waits for CI has had its session.
        open_steps = [step for step in steps if not step.status.final and not step.awaits_ci]
        waiting = [step for step in open_steps if protocol.automatic or step.status is StepStatus.RUNNING]
        chosen = [choose(settings, project, protocol, step) for step in waiting]
        require_engines(runtime, ((each.engine, each.model) for each in chosen))
        return
    author = choose_usual(settings, project, protocol)
    planning = project.default_models.get("planning") or settings.protocols.models.planning
    planner = choose_planner(settings, protocol)
    require_engines(runtime, [(planner, planning), (author.engine, author.model)])
    _require_reviewer(runtime, project, protocol)


def _require_reviewer(
    runtime: Runtime,
    project: Project | None = None,
    protocol: Protocol | None = None,
    *,
    author: Choice | None = None,
) -> None:
    around = Surroundings(runtime.settings, runtime.home, os.environ)
    try:
        require_reviewer(around, project, protocol, open_engine, author=author)
    except Blocked as error:
        raise NotReady(str(error), hint=error.hint, failure=Failure.NO_ACCESS, is_local=True) from error
