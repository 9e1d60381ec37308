"""A CodeMachine workspace as a value: what its files say, and which way through it is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ratchet.protocols.codemachine.agents import Agent, read_main_agents, read_sub_agents
from ratchet.protocols.codemachine.choices import Choices
from ratchet.protocols.codemachine.errors import WorkspaceInvalid
from ratchet.protocols.codemachine.files import FOLDER, Files
from ratchet.protocols.codemachine.modules import Module, read_modules
from ratchet.protocols.codemachine.paths import HOME
from ratchet.protocols.codemachine.placeholders import LARGEST_FILE, Placeholders, read_placeholders
from ratchet.protocols.codemachine.script import read_script
from ratchet.protocols.codemachine.syntax import LARGEST_SCRIPT
from ratchet.protocols.codemachine.template import LARGEST_TEMPLATE, Template, read_template
from ratchet.protocols.codemachine.values import Value
from ratchet.protocols.codemachine.workflow import Workflow, read_workflow

_WORKFLOWS = ("templates/workflows", "workflows", "workflow")
_ENDINGS = (".workflow.js", ".js")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CodeMachine:
    """Without a workflow every main agent does one step, in their order."""

    files: Files
    agents: tuple[Agent, ...]
    sub_agents: tuple[Agent, ...]
    modules: tuple[Module, ...]
    placeholders: Placeholders
    template: Template
    workflow: Workflow | None
    choices: Choices
    specification: str | None

    def agent(self, id: str) -> Agent | None:
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
    choices = Choices(track or said.track, said.conditions if conditions is None else frozenset(conditions))
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


def _config(files: Files, name: str, read: Callable[[Value], T], missing: T) -> T:
    path = f"{files.base}/config/{name}"
    return read(_exported(files, path)) if files.exists(path) else missing


def _exported(files: Files, path: str) -> Value:
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


def _workflow(files: Files, template: Template, wanted: str | None) -> Workflow | None:
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


def _read_workflow(files: Files, path: str) -> Workflow:
    return read_workflow(_exported(files, path), files.shown(path))


def _names(path: str) -> set[str]:
    file = path.rpartition("/")[2]
    return {file, *(file.removesuffix(ending) for ending in _ENDINGS)}


def _listed(paths: list[str]) -> str:
    names = sorted(path.rpartition("/")[2].removesuffix(".js").removesuffix(".workflow") for path in paths)
    return f"there are {', '.join(names)}" if names else "there are no workflow files"


def _check(choices: Choices, workflow: Workflow | None) -> None:
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
