"""Looking whether those who plan, carry out and review a protocol could work, before anything is paid for."""

from __future__ import annotations

import os

from ratchet.engines.failure import Failure
from ratchet.engines.preflight import NotReady, require_engines
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocol_steps import list_protocol_steps
from ratchet.ledger.protocols import Protocol, get_protocol
from ratchet.protocols.allowing import check_start
from ratchet.protocols.choosing import Choice, choose, choose_planner, choose_usual
from ratchet.protocols.qa.reviewer import require_reviewer
from ratchet.protocols.stream import Blocked
from ratchet.runtime import Runtime


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
    settings = runtime.settings
    with runtime.ledger.read() as tx:
        protocol = get_protocol(tx, run_id)
        project = get_project(tx, protocol.project_id)
        steps = list_protocol_steps(tx, run_id)
    check_start(protocol, steps)
    if steps:
        # Without `automatic` each waits for a person.
        waiting = [step for step in steps if protocol.automatic and not step.status.final]
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
