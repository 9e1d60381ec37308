"""Who reviews a step: never its author, unless the spec says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ratchet.config import Settings
from ratchet.engines.engine import Engine
from ratchet.engines.registry import Surroundings
from ratchet.kernel import RatchetError
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol
from ratchet.protocols.qa.asked import Asked, table, text
from ratchet.protocols.stream import Blocked

Opener = Callable[[str | None, Surroundings], Engine]
_HINT = (
    "name another engine in protocols.reviewer, or in qa.engine_id of the step; `ratchet doctor` lists them"
)


@dataclass(frozen=True, slots=True)
class Reviewer:
    engine: Engine
    model: str | None
    is_author: bool


def choose_reviewer(
    settings: Settings,
    surroundings: Surroundings,
    project: Project,
    protocol: Protocol,
    asked: Asked,
    author: str,
    open_engine: Opener,
) -> Reviewer:
    """The nearest word counts: the step's spec, the template, the settings, then any engine that the settings name.

    Raises `Blocked` when none is left but the author, or the one that is named cannot be opened.
    """
    model = _first(asked.model, table(project.default_models).get("qa"), settings.protocols.models.qa)
    if asked.engine_id and _plain(asked.engine_id) == author and not asked.allow_author:
        raise Blocked(
            f"the step is carried out by {author}, and its spec has {author} review it",
            event="qa_error",
            hint="name another engine in qa.engine_id, or set allow_author in the step's metadata",
        )
    named = [asked.engine_id] if asked.engine_id else list(_named(settings, protocol))
    others = [name for name in named if _plain(name) != author]
    if not others and not asked.allow_author:
        raise Blocked(f"there is no engine but the author {author} to review", event="qa_error", hint=_HINT)
    try:
        engine = open_engine(others[0] if others else (named or [author])[0], surroundings)
    except RatchetError as error:
        raise Blocked(f"the reviewer cannot be used: {error}", event="qa_error", hint=error.hint) from error
    is_author = engine.name == author
    if is_author and not asked.allow_author:
        # It was named by another name than the one that it calls itself.
        raise Blocked(f"the reviewer is the author {author}", event="qa_error", hint=_HINT)
    return Reviewer(engine, model, is_author)


def _named(settings: Settings, protocol: Protocol) -> Iterator[str]:
    template = table(table(protocol.template_config).get("template"))
    default = text(table(template.get("engineDefaults")).get("qa"))
    yield from filter(None, (default, settings.protocols.reviewer))
    yield from filter(None, (settings.engines.default, settings.protocols.planner, settings.protocols.engine))
    yield from sorted(settings.engines.command)
    if settings.llm.default is not None:
        yield "llm"


def _plain(name: str) -> str:
    """The engine's name without what it is opened with."""
    return name.partition(":")[0]


def _first(*values: object) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)
