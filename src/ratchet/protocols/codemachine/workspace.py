"""A CodeMachine workspace as a value: what its files say, and which way through it is taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ratchet.protocols.codemachine.agents import (
    AgentPart,
    Module,
    WorkspaceAgent,
    read_main_agents,
    read_modules,
    read_parts,
    read_sub_agents,
    skipped,
)
from ratchet.protocols.codemachine.fields import (
    ALWAYS,
    LARGEST_FILE,
    Fields,
    Only,
    Placeholders,
    TrackChoices,
    kind,
    read_placeholders,
)
from ratchet.protocols.codemachine.files import FOLDER, HOME, Files, SourcePlace, WorkspaceInvalid
from ratchet.protocols.codemachine.script import read_script
from ratchet.protocols.codemachine.syntax import LARGEST_SCRIPT, ScriptCall, ScriptValue

_WORKFLOWS = ("templates/workflows", "workflows", "workflow")
_ENDINGS = (".workflow.js", ".js")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CodeMachine:
    """Without a workflow every main agent does one step, in their order."""

    files: Files
    agents: tuple[WorkspaceAgent, ...]
    sub_agents: tuple[WorkspaceAgent, ...]
    modules: tuple[Module, ...]
    placeholders: Placeholders
    template: Template
    workflow: WorkspaceWorkflow | None
    choices: TrackChoices
    specification: str | None

    def agent(self, id: str) -> WorkspaceAgent | None:
        return next((agent for agent in self.agents if agent.id == id), None)

    def module(self, id: str) -> Module | None:
        return next((module for module in self.modules if module.id == id), None)


def read_workspace(
    path: Path,
    *,
    workflow: str | None = None,
    track: str | None = None,
    conditions: Iterable[str] | None = None,
) -> CodeMachine:
    """Read a workspace: a project with a folder `.codemachine`, that folder, or a package of workflows.

    Nothing is run and nothing outside of it is read. `workflow`, `track` and `conditions` stand in for what
    `template.json` says. Raises `WorkspaceInvalid`, with file and line where they are known.
    """
    files = Files(path)
    template = _template(files)
    chosen = _workflow(files, template, workflow)
    said = template.choices
    choices = TrackChoices(
        track or said.track, said.conditions if conditions is None else frozenset(conditions)
    )
    _check(choices, chosen)
    return CodeMachine(
        files=files,
        agents=_config(files, "main.agents.js", read_main_agents, ()),
        sub_agents=_config(files, "sub.agents.js", read_sub_agents, ()),
        modules=_config(files, "modules.js", read_modules, ()),
        placeholders=_config(files, "placeholders.js", read_placeholders, Placeholders()),
        template=template,
        workflow=chosen,
        choices=choices,
        specification=_specification(files),
    )


def _config(files: Files, name: str, read: Callable[[ScriptValue], T], missing: T) -> T:
    path = f"{files.base}/config/{name}"
    return read(_exported(files, path)) if files.exists(path) else missing


def _exported(files: Files, path: str) -> ScriptValue:
    return read_script(files.read(path, limit=LARGEST_SCRIPT), files.shown(path), path).exported


def _template(files: Files) -> Template:
    path = next(filter(files.exists, _beside(files, "template.json")), None)
    if path is None:
        return Template()
    return read_template(files.read(path, limit=LARGEST_TEMPLATE), files.shown(path))


def _specification(files: Files) -> str | None:
    path = next(filter(files.exists, _beside(files, "inputs/specifications.md")), None)
    return None if path is None else files.text(path, limit=LARGEST_FILE).strip() or None


def _beside(files: Files, path: str) -> list[str]:
    """A package keeps what belongs to a project in the project's folder `.codemachine`."""
    return list(dict.fromkeys((f"{files.base}/{path}", f"{HOME}/{FOLDER}/{path}")))


def _workflow(files: Files, template: Template, wanted: str | None) -> WorkspaceWorkflow | None:
    """The workflow that is asked for, else the one that the template names, else the only one."""
    found = [path for folder in _WORKFLOWS for path in files.matching(f"{files.base}/{folder}/*.js")]
    named = wanted or template.workflow
    if named is not None:
        fitting = [path for path in found if named in _names(path)]
        if len(fitting) != 1:
            many = "more than one workflow is" if fitting else "no workflow is"
            raise WorkspaceInvalid(
                f"{many} called {named[:80]!r}",
                file=None if wanted else template.place.file,
                hint=_listed(found),
            )
        return _read_workflow(files, fitting[0])
    fitting = [path for path in found if template.name in _names(path)]
    if len(fitting) != 1:
        fitting = [path for path in found if not path.rpartition("/")[2].startswith("_")]
    if len(fitting) > 1:
        raise WorkspaceInvalid(
            f"there are {len(fitting)} workflows, and nothing says which one is meant",
            hint=f"name it when importing, or as activeTemplate in template.json; {_listed(fitting)}",
        )
    return _read_workflow(files, fitting[0]) if fitting else None


def _read_workflow(files: Files, path: str) -> WorkspaceWorkflow:
    return read_workflow(_exported(files, path), files.shown(path))


def _names(path: str) -> set[str]:
    file = path.rpartition("/")[2]
    return {file, *(file.removesuffix(ending) for ending in _ENDINGS)}


def _listed(paths: list[str]) -> str:
    names = sorted(path.rpartition("/")[2].removesuffix(".js").removesuffix(".workflow") for path in paths)
    return f"there are {', '.join(names)}" if names else "there are no workflow files"


def _check(choices: TrackChoices, workflow: WorkspaceWorkflow | None) -> None:
    """Raise `WorkspaceInvalid` for a choice that the workflow does not offer."""
    if workflow is None:
        return
    offered = (
        ("track", workflow.tracks, {choices.track} - {None}),
        ("condition", workflow.conditions, choices.conditions),
    )
    for what, known, chosen in offered:
        others = sorted(str(each) for each in chosen if known and each not in known)
        if others:
            raise WorkspaceInvalid(
                f"it has no {what} {others[0][:80]!r}",
                file=workflow.file,
                hint=f"there are {', '.join(known)}",
            )


LARGEST_TEMPLATE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Template:
    """The file as it is. What CodeMachine itself remembers there of its own runs means nothing here."""

    data: Mapping[str, Any] = field(default_factory=dict)
    place: SourcePlace = field(default_factory=lambda: SourcePlace("template.json"))

    @property
    def workflow(self) -> str | None:
        """The workflow that must be there."""
        return self.text("workflow") or self.text("activeTemplate")

    @property
    def name(self) -> str | None:
        """What the template is called, which may be like a workflow."""
        named = self.data.get("template")
        return named if isinstance(named, str) else None

    @property
    def choices(self) -> TrackChoices:
        conditions = self.data.get("selectedConditions") or []
        if not isinstance(conditions, list) or not all(isinstance(each, str) for each in conditions):
            raise self.place.error("selectedConditions must be an array of texts")
        return TrackChoices(self.text("selectedTrack"), frozenset(conditions))

    def text(self, name: str) -> str | None:
        value = self.data.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.place.error(f"{name} must be a text")
        return value


def read_template(content: bytes, file: str) -> Template:
    """Raises `WorkspaceInvalid` for what is not a JSON object."""
    place = SourcePlace(file)
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise SourcePlace(file, error.lineno).error(f"it is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise place.error("it is not JSON") from None
    if not isinstance(data, dict):
        raise place.error("it must be a JSON object")
    defaults = data.get("engineDefaults")
    if defaults is not None and not isinstance(defaults, dict):
        raise place.error("engineDefaults must be an object")
    return Template(data, place)


_HEADINGS = ("separator", "resolveUI")
_STEPS = ("resolveStep", "resolveModule", "resolveFolder")


@dataclass(frozen=True, slots=True)
class WorkflowEntry:
    """One line of a workflow: a heading, or an agent, a module or a folder with what is different here."""

    place: SourcePlace
    heading: str | None = None
    function: str = "resolveStep"
    id: str = ""
    name: str | None = None
    prompt: tuple[AgentPart, ...] = ()
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
class WorkspaceWorkflow:
    """`tracks` and `conditions` are what can be chosen. `sub_agents` are those it uses; nothing means all."""

    file: str
    entries: tuple[WorkflowEntry, ...]
    name: str | None = None
    sub_agents: tuple[str, ...] | None = None
    tracks: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


def read_workflow(exported: ScriptValue, file: str) -> WorkspaceWorkflow:
    """Raises `WorkspaceInvalid`."""
    fields = Fields.of(exported, "the workflow")
    steps = fields.get("steps")
    if steps is None or not isinstance(steps.data, tuple):
        raise fields.place.error("the workflow has no array of steps")
    return WorkspaceWorkflow(
        file=file,
        entries=tuple(_entry(each) for each in steps.data),
        name=fields.text("name"),
        sub_agents=None if fields.get("subAgentIds") is None else fields.texts("subAgentIds"),
        tracks=_tracks(fields),
        conditions=_conditions(fields),
    )


def _entry(value: ScriptValue) -> WorkflowEntry:
    if not isinstance(value.data, ScriptCall) or value.data.function not in (*_HEADINGS, *_STEPS):
        raise value.place.error(f"a step must be resolveStep(…) or one like it, not {kind(value)}")
    function, arguments = value.data.function, value.data.arguments
    first = arguments[0] if arguments else None
    if first is None or not isinstance(first.data, str) or not first.data.strip():
        raise value.place.error(f"{function} must be given a text")
    if function in _HEADINGS:
        return WorkflowEntry(value.place, heading=" ".join(first.data.split()))
    more = arguments[1] if len(arguments) > 1 else ScriptValue({}, value.place)
    changed = Fields.of(
        ScriptValue({}, more.place) if more.data is None else more, f"{function}({first.data[:40]!r})"
    )
    return WorkflowEntry(
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
