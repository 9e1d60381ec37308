"""The places of a workflow that somebody fills: who does what, in which order, before anything is numbered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ratchet.protocols.codemachine.agents import Agent
from ratchet.protocols.codemachine.choices import all_hold
from ratchet.protocols.codemachine.folders import unfolded
from ratchet.protocols.codemachine.modules import Module
from ratchet.protocols.codemachine.workflow import Entry, Workflow
from ratchet.protocols.codemachine.workspace import CodeMachine


@dataclass(frozen=True, slots=True)
class Slot:
    """`position` counts every entry of the workflow, headings included, since that is how its loops count."""

    position: int
    agent: Agent
    entry: Entry | None = None
    module: Module | None = None
    heading: str | None = None


def slots_of(workspace: CodeMachine) -> tuple[Slot, ...]:
    """Who does a step, in their order. Raises `WorkspaceInvalid` for ids that nobody has."""
    if workspace.workflow is not None:
        return tuple(_of_workflow(workspace, workspace.workflow))
    return tuple(_of_agents(workspace))


def _of_agents(workspace: CodeMachine) -> Iterator[Slot]:
    position = 0
    for agent in workspace.agents:
        # A controller talks to the others in the place of a person; it does no step.
        if agent.controller or not agent.only.holds(workspace.choices, agent.place):
            continue
        for each in unfolded(workspace, agent):
            yield Slot(position, each)
            position += 1


def _of_workflow(workspace: CodeMachine, workflow: Workflow) -> Iterator[Slot]:
    heading: str | None = None
    position = 0
    for entry in workflow.entries:
        if entry.heading is not None:
            heading = entry.heading
            position += 1
            continue
        module = _module(workspace, entry)
        agent = module.agent if module is not None else _agent(workspace, entry)
        for each in unfolded(workspace, agent):
            if all_hold((entry.only, each.only), workspace.choices, entry.place):
                yield Slot(position, _changed(each, entry), entry, module, heading)
            position += 1


def _module(workspace: CodeMachine, entry: Entry) -> Module | None:
    if entry.function != "resolveModule":
        return None
    module = workspace.module(entry.id)
    if module is None:
        known = ", ".join(each.id for each in workspace.modules) or "none"
        raise entry.place.error(f"there is no module {entry.id[:80]!r}", hint=f"modules.js has {known}")
    if not module.agent.prompt and not entry.prompt:
        raise module.agent.place.error(
            f"module {module.id!r} is a step of the workflow, but has no promptPath"
        )
    return module


def _agent(workspace: CodeMachine, entry: Entry) -> Agent:
    agent = workspace.agent(entry.id)
    if agent is None or agent.folder != (entry.function == "resolveFolder"):
        known = ", ".join(each.id for each in workspace.agents) or "nobody"
        what = "folder" if entry.function == "resolveFolder" else "main agent"
        raise entry.place.error(f"there is no {what} {entry.id[:80]!r}", hint=f"main.agents.js has {known}")
    return agent


def _changed(agent: Agent, entry: Entry) -> Agent:
    """The agent as this entry wants it."""
    return replace(
        agent,
        name=entry.name or agent.name,
        prompt=entry.prompt or agent.prompt,
        engine=entry.engine or agent.engine,
        model=entry.model or agent.model,
        effort=entry.effort or agent.effort,
    )
