"""Who reviews a step: as independent of its author as what there is allows, and never less than the policy asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ratchet.config import Settings
from ratchet.config.protocol_settings import REVIEWER_POLICIES
from ratchet.engines.agent_model import other_model, told_model
from ratchet.engines.engine import Engine
from ratchet.engines.providers import AGENTS, default_engine
from ratchet.engines.registry import Surroundings, look_at
from ratchet.kernel import RatchetError
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol
from ratchet.protocols.choosing import Choice, choose_usual
from ratchet.protocols.qa.asked import Asked, read_asked, table, text
from ratchet.protocols.stream import Blocked

Opener = Callable[[str | None, Surroundings], Engine]
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


def author_of(choice: Choice, engine: str, model: str | None, surroundings: Surroundings) -> Author:
    """The author of a change that the engine of `choice` makes, or made under the name `engine`.

    Without its `model` it is the one that a session would be held with now.
    """
    usual = choice.engine or default_engine(surroundings.settings, surroundings.environment)
    opened_as = usual if _plain(usual) == _plain(engine) else engine
    return Author(engine, opened_as, model or told_model(opened_as, choice.model, surroundings))


def require_reviewer(
    surroundings: Surroundings,
    project: Project | None,
    protocol: Protocol | None,
    open_engine: Opener,
    *,
    author: Choice | None = None,
) -> Reviewer:
    """Who would review what the usual author makes. To be asked before a plan is paid for. Raises `Blocked`.

    Without a project and a protocol: by the settings alone. `author` is who is named instead of the usual one.
    """
    settings = surroundings.settings
    choice = author or choose_usual(settings, project, protocol)
    name = choice.engine or default_engine(settings, surroundings.environment)
    made_by = author_of(choice, _plain(name), None, surroundings)
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
    surroundings: Surroundings,
    project: Project | None,
    protocol: Protocol | None,
    asked: Asked,
    author: Author,
    open_engine: Opener,
) -> Reviewer:
    """Whom the step's spec, the template or the settings name; else the most independent engine that is ready.

    Asks the same engines in the same way as `ratchet engine check`. Raises `Blocked` when nobody is left that
    `protocols.reviewer` accepts, with what each lacks. Reads files and starts programs; not for an event loop.
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
    raise Blocked(
        f"nobody can review what {author.engine} makes: {'; '.join(refused)}", event="qa_error", hint=_HINT
    )


def reviewer_policy(settings: Settings, protocol: Protocol | None) -> str:
    """The nearest policy that is named; whoever names an engine accepts what there is if that one is the author."""
    return next((word for word in _words(settings, protocol) if word in REVIEWER_POLICIES), "any")


def _words(settings: Settings, protocol: Protocol | None) -> list[str]:
    """What the template and the settings say about the reviewer: a policy or an engine each, the nearest first."""
    template = table(table(protocol and protocol.template_config).get("template"))
    words = (text(table(template.get("engineDefaults")).get("qa")), settings.protocols.reviewer)
    return [word for word in words if word]


def _options(
    settings: Settings,
    surroundings: Surroundings,
    project: Project | None,
    protocol: Protocol | None,
    asked: Asked,
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
        # Who is named is meant: if that one cannot work, somebody has to know.
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


def _usual(settings: Settings, surroundings: Surroundings, author: Author) -> Iterator[str]:
    """Engines but the author: those that the settings name, then the agents that Ratchet knows."""
    protocols = settings.protocols
    first = (default_engine(settings, surroundings.environment), protocols.planner, protocols.engine)
    names = dict.fromkeys((*filter(None, first), *sorted(settings.engines.command), *AGENTS))
    yield from (name for name in names if _plain(name) != _plain(author.engine))


def _independence(
    engine: Engine, option: _Option, author: Author, surroundings: Surroundings
) -> Independence:
    model = told_model(option.name, option.model, surroundings)
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
