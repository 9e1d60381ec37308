"""Which engine plans, does a step and reviews it, and whether they could work before money is spent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ratchet.config import Settings
from ratchet.config.workflow_settings import REVIEWER_POLICIES
from ratchet.engines.engine import Engine, Failure
from ratchet.engines.preflight import NotReady, require_engines
from ratchet.engines.providers import AGENTS, default_engine
from ratchet.engines.registry import EngineContext, configured_model, look_at, open_engine, other_model
from ratchet.kernel import RatchetError, RunStatus, StepStatus
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import (
    Protocol,
    ProtocolStep,
    get_protocol,
    get_protocol_step,
    list_protocol_steps,
)
from ratchet.protocols.actions import check_resume, check_run, check_start, latest_stopped, next_step
from ratchet.protocols.qa.contract import StepQa, read_asked, table, text
from ratchet.protocols.stream import ProtocolBlocked
from ratchet.runtime import Runtime


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Nothing means that the engine's own settings decide."""

    engine: str | None
    model: str | None


def choose(settings: Settings, project: Project, protocol: Protocol, step: ProtocolStep) -> EngineChoice:
    """The step's spec, then the step, then its agent, then the template, then the project, then the settings."""
    spec = _table(step.spec)
    agent = _table(_table(spec.get("metadata")).get("agent"))
    usual = choose_usual(settings, project, protocol)
    return EngineChoice(
        _first_given(spec.get("engine_id"), step.engine_id, agent.get("engine_id"), usual.engine),
        _first_given(spec.get("model"), step.model, agent.get("model"), usual.model),
    )


def choose_usual(settings: Settings, project: Project | None, protocol: Protocol | None) -> EngineChoice:
    """As `choose`, for a step that names nothing itself."""
    defaults = _defaults(protocol)
    engine = _first_given(defaults.get("execute"), settings.protocols.engine)
    models = _table(project and project.default_models)
    return EngineChoice(
        engine, _first_given(defaults.get("executeModel"), models.get("exec"), settings.protocols.models.exec)
    )


def choose_planner(settings: Settings, protocol: Protocol) -> str | None:
    """The template, then the settings."""
    return _first_given(_defaults(protocol).get("plan"), settings.protocols.planner)


def _defaults(protocol: Protocol | None) -> Mapping[str, Any]:
    template = _table(_table(protocol and protocol.template_config).get("template"))
    return _table(template.get("engineDefaults"))


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _first_given(*values: Any) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


Opener = Callable[[str | None, EngineContext], Engine]
_HINT = (
    "run `ratchet setup`, name a reviewer in protocols.reviewer or in qa.engine_id of the step, or set "
    "protocols.reviewer to other-model or any; `ratchet engine check` says what each engine lacks"
)


class Independence(StrEnum):
    """Of a reviewer from the author, the best first."""

    ENGINE = "another engine"
    MODEL = "another model"
    NONE = "same model"


# What each policy still accepts.
_ACCEPTED = {
    "independent": (Independence.ENGINE,),
    "other-model": (Independence.ENGINE, Independence.MODEL),
    "any": tuple(Independence),
}


@dataclass(frozen=True, slots=True)
class Author:
    """Who made a change: what the engine calls itself, how it can be opened again, and its model if that is known."""

    engine: str
    opened_as: str | None = None
    model: str | None = None


PERSON = Author("a person")
"""Whose work every engine may review."""


def session_author(
    choice: EngineChoice, engine: str, model: str | None, surroundings: EngineContext
) -> Author:
    """The author of a change that the engine of `choice` makes, or made under the name `engine`.

    Without its `model` it is the one that a session would be held with now.
    """
    usual = choice.engine or default_engine(surroundings.settings, surroundings.environment)
    opened_as = usual if _plain(usual) == _plain(engine) else engine
    return Author(engine, opened_as, model or configured_model(opened_as, choice.model, surroundings))


def require_reviewer(
    surroundings: EngineContext,
    project: Project | None,
    protocol: Protocol | None,
    open_engine: Opener,
    *,
    author: EngineChoice | None = None,
) -> Reviewer:
    """Who would review what the usual author makes. To be asked before a plan is paid for. Raises `ProtocolBlocked`.

    Without a project and a protocol: by the settings alone. `author` is who is named instead of the usual one.
    """
    settings = surroundings.settings
    choice = author or choose_usual(settings, project, protocol)
    name = choice.engine or default_engine(settings, surroundings.environment)
    made_by = session_author(choice, _plain(name), None, surroundings)
    return choose_reviewer(settings, surroundings, project, protocol, read_asked({}), made_by, open_engine)


@dataclass(frozen=True, slots=True)
class Reviewer:
    engine: Engine
    model: str | None
    independence: Independence


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    model: str | None


def choose_reviewer(
    settings: Settings,
    surroundings: EngineContext,
    project: Project | None,
    protocol: Protocol | None,
    asked: StepQa,
    author: Author,
    open_engine: Opener,
) -> Reviewer:
    """Whom the step's spec, the template or the settings name; else the most independent engine that is ready.

    Asks the same engines in the same way as `ratchet engine check`. Raises `ProtocolBlocked`, with what each
    lacks, when none is left that `protocols.reviewer` accepts. Reads files and starts programs; not for an event loop.
    """
    policy = "any" if asked.allow_author else reviewer_policy(settings, protocol)
    found: list[tuple[Reviewer, str]] = []
    refused = []
    for option in _options(settings, surroundings, project, protocol, asked, author):
        try:
            engine = open_engine(option.name, surroundings)
        except RatchetError as error:
            refused.append(f"{option.name}: {error}")
            continue
        independence = _independence(engine, option, author, surroundings)
        if independence in _ACCEPTED[policy]:
            found.append((Reviewer(engine, option.model, independence), option.name))
        else:
            refused.append(
                f"{option.name} would be the {_less(independence)}, and protocols.reviewer is {policy}"
            )
    for reviewer, name in sorted(found, key=lambda each: list(Independence).index(each[0].independence)):
        [looked] = asyncio.run(look_at([name], surroundings, open_engine))
        if looked.readiness.ready:
            return reviewer
        refused.append(f"{name}: {looked.readiness.detail}")
    raise ProtocolBlocked(
        f"no engine can review what {author.engine} makes: {'; '.join(refused)}", event="qa_error", hint=_HINT
    )


def reviewer_policy(settings: Settings, protocol: Protocol | None) -> str:
    """The nearest policy that is named; a named engine is accepted even if it is the author."""
    return next((word for word in _words(settings, protocol) if word in REVIEWER_POLICIES), "any")


def _words(settings: Settings, protocol: Protocol | None) -> list[str]:
    """What the template and the settings say about the reviewer: a policy or an engine each, the nearest first."""
    template = table(table(protocol and protocol.template_config).get("template"))
    words = (text(table(template.get("engineDefaults")).get("qa")), settings.protocols.reviewer)
    return [word for word in words if word]


def _options(
    settings: Settings,
    surroundings: EngineContext,
    project: Project | None,
    protocol: Protocol | None,
    asked: StepQa,
    author: Author,
) -> Iterator[_Option]:
    """The reviewers that may be asked, the best first."""
    model = _first(
        asked.model, table(project and project.default_models).get("qa"), settings.protocols.models.qa
    )
    configured = [word for word in _words(settings, protocol) if word not in REVIEWER_POLICIES]
    named = [asked.engine_id] if asked.engine_id else configured
    others = [name for name in named if _plain(name) != _plain(author.engine)]
    if others:
        # Who is named is meant: if that one cannot work, a person has to know.
        yield _Option(others[0], model)
        return
    if not named:
        yield from (_Option(name, model) for name in _usual(settings, surroundings, author))
    again = named[0] if named else author.opened_as
    if again is not None:
        other = model or other_model(again, author.model, surroundings)
        yield _Option(again, other)
        if other is not None and not asked.engine_id and model is None:
            yield _Option(again, author.model)
    if not named and settings.llm.default is not None and _plain(author.engine) != "llm":
        # Last of those that are as independent: it sees the change and no files beside it.
        yield _Option("llm", model)


def _usual(settings: Settings, surroundings: EngineContext, author: Author) -> Iterator[str]:
    """Engines but the author: those that the settings name, then the agents that Ratchet knows."""
    protocols = settings.protocols
    first = (default_engine(settings, surroundings.environment), protocols.planner, protocols.engine)
    names = dict.fromkeys((*filter(None, first), *sorted(settings.engines.command), *AGENTS))
    yield from (name for name in names if _plain(name) != _plain(author.engine))


def _independence(
    engine: Engine, option: _Option, author: Author, surroundings: EngineContext
) -> Independence:
    model = configured_model(option.name, option.model, surroundings)
    same = model is not None and model == author.model
    if engine.name != author.engine:
        return Independence.NONE if same else Independence.ENGINE
    return Independence.NONE if same or model is None else Independence.MODEL


def _less(independence: Independence) -> str:
    return "author itself" if independence is Independence.NONE else "author with another model"


def _plain(name: str) -> str:
    """The engine's name without what it is opened with."""
    return name.partition(":")[0]


def _first(*values: object) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


UNDER_WAY = (RunStatus.PLANNING, RunStatus.RUNNING)
"""One whose process was killed still counts as this."""


def check_new(
    runtime: Runtime, *, engine: str | None = None, model: str | None = None, reviewer: str | None = None
) -> None:
    """For a protocol that is still to be made; `reviewer` is an engine that is named. Raises `NotReady`."""
    settings = runtime.settings.protocols
    author = EngineChoice(engine or settings.engine, model or settings.models.exec)
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
    author: EngineChoice | None = None,
) -> None:
    around = EngineContext(runtime.settings, runtime.home, os.environ)
    try:
        require_reviewer(around, project, protocol, open_engine, author=author)
    except ProtocolBlocked as error:
        raise NotReady(str(error), hint=error.hint, failure=Failure.NO_ACCESS, is_local=True) from error
