"""Workflow files: which agents do what, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.protocols.codemachine.agents import Part, read_parts
from ratchet.protocols.codemachine.choices import ALWAYS, Only
from ratchet.protocols.codemachine.errors import Place
from ratchet.protocols.codemachine.fields import Fields, kind
from ratchet.protocols.codemachine.modules import skipped
from ratchet.protocols.codemachine.values import Call, Value

_HEADINGS = ("separator", "resolveUI")
_STEPS = ("resolveStep", "resolveModule", "resolveFolder")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a workflow: a heading, or an agent, a module or a folder with what is different here."""

    place: Place
    heading: str | None = None
    function: str = "resolveStep"
    id: str = ""
    name: str | None = None
    prompt: tuple[Part, ...] = ()
    engine: str | None = None
    model: str | None = None
    effort: str | None = None
    once: bool = False
    fallback: str | None = None
    only: Only = ALWAYS
    loop_steps: int | None = None
    loop_most: int | None = None
    loop_skip: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workflow:
    """`tracks` and `conditions` are what can be chosen. `sub_agents` are those it uses; nothing means all."""

    file: str
    entries: tuple[Entry, ...]
    name: str | None = None
    sub_agents: tuple[str, ...] | None = None
    tracks: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


def read_workflow(exported: Value, file: str) -> Workflow:
    """Raises `WorkspaceInvalid`."""
    fields = Fields.of(exported, "the workflow")
    steps = fields.get("steps")
    if steps is None or not isinstance(steps.data, tuple):
        raise fields.place.error("the workflow has no array of steps")
    return Workflow(
        file=file,
        entries=tuple(_entry(each) for each in steps.data),
        name=fields.text("name"),
        sub_agents=None if fields.get("subAgentIds") is None else fields.texts("subAgentIds"),
        tracks=_tracks(fields),
        conditions=_conditions(fields),
    )


def _entry(value: Value) -> Entry:
    if not isinstance(value.data, Call) or value.data.function not in (*_HEADINGS, *_STEPS):
        raise value.place.error(f"a step must be resolveStep(…) or one like it, not {kind(value)}")
    function, arguments = value.data.function, value.data.arguments
    first = arguments[0] if arguments else None
    if first is None or not isinstance(first.data, str) or not first.data.strip():
        raise value.place.error(f"{function} must be given a text")
    if function in _HEADINGS:
        return Entry(value.place, heading=" ".join(first.data.split()))
    more = arguments[1] if len(arguments) > 1 else Value({}, value.place)
    changed = Fields.of(
        Value({}, more.place) if more.data is None else more, f"{function}({first.data[:40]!r})"
    )
    return Entry(
        place=value.place,
        function=function,
        id=first.data,
        name=changed.text("agentName"),
        prompt=read_parts(changed, "promptPath"),
        engine=changed.text("engine", "engineId"),
        model=changed.text("model"),
        effort=changed.text("modelReasoningEffort"),
        once=changed.flag("executeOnce"),
        fallback=changed.text("notCompletedFallback"),
        only=Only.of(changed),
        loop_steps=changed.whole("loopSteps"),
        loop_most=changed.whole("loopMaxIterations"),
        loop_skip=skipped(changed, "loopSkip"),
    )


def _tracks(fields: Fields) -> tuple[str, ...]:
    """Either a table of tracks, or a question with options."""
    tracks = fields.fields("tracks")
    if tracks is None:
        return ()
    options = tracks.fields("options") if "question" in tracks.entries else tracks
    return () if options is None else tuple(options.entries)


def _conditions(fields: Fields) -> tuple[str, ...]:
    tables = [fields.get("conditions")]
    for group in fields.values("conditionGroups"):
        inner = Fields.of(group, "a condition group")
        tables.append(inner.get("conditions"))
    named: dict[str, None] = {}
    for table in tables:
        if table is not None and isinstance(table.data, Mapping):
            named.update(dict.fromkeys(table.data))
    return tuple(named)
