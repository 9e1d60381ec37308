"""The steps that a workspace comes to: numbered, with their loops and triggers."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratchet.protocols.codemachine.agents import AgentPart, Behaviour, Module, WorkspaceAgent, check_id
from ratchet.protocols.codemachine.fields import all_hold
from ratchet.protocols.codemachine.files import SourcePlace, WorkspaceInvalid
from ratchet.protocols.codemachine.workspace import CodeMachine, WorkflowEntry, WorkspaceWorkflow

MOST_TASKS = 200


@dataclass(frozen=True, slots=True)
class WorkspaceTask:
    """One step. `name` is like `00-plan`; `id` is that of its agent, unless another step has the same agent.

    `fallback` is the agent whose prompt fixes what an attempt left unfinished. `checks` says that the step is itself a
    check that loops back when it fails.
    """

    index: int
    id: str
    name: str
    agent: WorkspaceAgent
    policies: tuple[dict[str, Any], ...]
    heading: str | None = None
    fallback: WorkspaceAgent | None = None
    once: bool = False
    checks: bool = False


def tasks_of(workspace: CodeMachine) -> tuple[WorkspaceTask, ...]:
    """Raises `WorkspaceInvalid` when there are none, and for unknown ids."""
    slots = slots_of(workspace)
    if not slots:
        what = "no step is left of the workflow" if workspace.workflow else "there are no main agents"
        file = (
            workspace.workflow.file
            if workspace.workflow
            else workspace.files.shown(f"{workspace.files.base}/config/main.agents.js")
        )
        raise WorkspaceInvalid(what, file=file, hint="choose another track or other conditions")
    if len(slots) > MOST_TASKS:
        raise slots[MOST_TASKS].agent.place.error(f"there are more than {MOST_TASKS} steps")
    times = Counter(slot.agent.id for slot in slots)
    return tuple(
        _task(workspace, slots, index, alone=times[slot.agent.id] == 1) for index, slot in enumerate(slots)
    )


def _task(workspace: CodeMachine, slots: Sequence[Slot], index: int, *, alone: bool) -> WorkspaceTask:
    slot = slots[index]
    name = f"{index:02d}-{slot.agent.id}"
    behaviour = slot.module.behaviour if slot.module else None
    return WorkspaceTask(
        index=index,
        id=slot.agent.id if alone else name,
        name=name,
        agent=slot.agent,
        policies=tuple(_policies(workspace, slots, index)),
        heading=slot.heading,
        fallback=_fallback(workspace, slot),
        once=slot.entry is not None and slot.entry.once,
        checks=behaviour is not None and behaviour.type == "loop",
    )


def _fallback(workspace: CodeMachine, slot: Slot) -> WorkspaceAgent | None:
    if slot.entry is None or slot.entry.fallback is None:
        return None
    agent = workspace.agent(slot.entry.fallback)
    if agent is None or agent.folder:
        raise slot.entry.place.error(f"there is no main agent {slot.entry.fallback[:80]!r} to fall back to")
    return agent


def _policies(workspace: CodeMachine, slots: Sequence[Slot], index: int) -> Iterator[dict[str, Any]]:
    slot = slots[index]
    agent = slot.agent
    for id in agent.modules:
        if workspace.module(id) is None:
            raise agent.place.error(f"agent {agent.id!r} names the module {id[:80]!r}, which does not exist")
    own_steps = {each.module.id for each in slots if each.module is not None}
    for module in workspace.modules:
        # What is a step of its own acts as one; it belongs to another only where that one says so.
        named = module.id in agent.modules
        if (
            module.behaviour
            and module is not slot.module
            and (named or (slot.module is None and module.id not in own_steps and module.belongs_to(agent)))
        ):
            yield _policy(
                slots, module, module.behaviour, module.behaviour.step_back, module.behaviour.skip, index
            )
    if slot.module is not None and slot.module.behaviour is not None:
        yield _own_policy(slots, index, slot.module, slot.module.behaviour)


def _own_policy(slots: Sequence[Slot], index: int, module: Module, behaviour: Behaviour) -> dict[str, Any]:
    """The behaviour of a module that is a step of its own, with what its entry changes."""
    slot = slots[index]
    entry = slot.entry
    assert entry is not None
    skip = entry.loop_skip or behaviour.skip
    back: int | None = None
    if behaviour.type == "loop":
        steps = entry.loop_steps or behaviour.step_back or 1
        back = index - _loop_start(slots, index, slot.position - steps, _indexes(slots, skip))
    policy = _policy(slots, module, behaviour, back, skip, index)
    return policy | ({} if entry.loop_most is None else {"max_iterations": entry.loop_most})


def _loop_start(slots: Sequence[Slot], index: int, position: int, skip: set[int]) -> int:
    """The first step from a position on that the loop does again."""
    left_out = skip | _once(slots)
    for number, slot in enumerate(slots[:index]):
        if slot.position >= position and number not in left_out:
            return number
    raise slots[index].agent.place.error(
        f"the loop of {slots[index].agent.id!r} has no step to go back to",
        hint="look at loopSteps and loopSkip",
    )


def _policy(
    slots: Sequence[Slot],
    module: Module,
    behaviour: Behaviour,
    step_back: int | None,
    skip: Sequence[int | str],
    index: int,
) -> dict[str, Any]:
    """A policy as specs have it; what was not said is left out."""
    skipped = _indexes(slots, skip)
    if behaviour.type == "loop":
        skipped |= _once(slots) - {index}
    said = {
        "module_id": module.id,
        "behavior": behaviour.type,
        "action": behaviour.action,
        "max_iterations": behaviour.max_iterations,
        "step_back": step_back,
        "skip_steps": sorted(skipped),
        "trigger_agent_id": behaviour.trigger_agent,
        "target_agent_id": behaviour.target_agent,
        "condition": behaviour.condition,
        "conditions": behaviour.conditions,
    }
    return {key: value for key, value in said.items() if value not in (None, [])}


def _once(slots: Sequence[Slot]) -> set[int]:
    return {number for number, slot in enumerate(slots) if slot.entry is not None and slot.entry.once}


def _indexes(slots: Sequence[Slot], skip: Sequence[int | str]) -> set[int]:
    """The steps that are meant. An agent that has no step here is none to be left out."""
    found: set[int] = set()
    for each in skip:
        if isinstance(each, int):
            found.add(each)
        else:
            found.update(number for number, slot in enumerate(slots) if slot.agent.id == each)
    return found


@dataclass(frozen=True, slots=True)
class Slot:
    """`position` counts every entry of the workflow, headings included, since that is how its loops count."""

    position: int
    agent: WorkspaceAgent
    entry: WorkflowEntry | None = None
    module: Module | None = None
    heading: str | None = None


def slots_of(workspace: CodeMachine) -> tuple[Slot, ...]:
    """Who does a step, in their order. Raises `WorkspaceInvalid` for unknown ids."""
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


def _of_workflow(workspace: CodeMachine, workflow: WorkspaceWorkflow) -> Iterator[Slot]:
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


def _module(workspace: CodeMachine, entry: WorkflowEntry) -> Module | None:
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


def _agent(workspace: CodeMachine, entry: WorkflowEntry) -> WorkspaceAgent:
    agent = workspace.agent(entry.id)
    if agent is None or agent.folder != (entry.function == "resolveFolder"):
        known = ", ".join(each.id for each in workspace.agents) or "none"
        what = "folder" if entry.function == "resolveFolder" else "main agent"
        raise entry.place.error(f"there is no {what} {entry.id[:80]!r}", hint=f"main.agents.js has {known}")
    return agent


def _changed(agent: WorkspaceAgent, entry: WorkflowEntry) -> WorkspaceAgent:
    """The agent as this entry wants it."""
    return replace(
        agent,
        name=entry.name or agent.name,
        prompt=entry.prompt or agent.prompt,
        engine=entry.engine or agent.engine,
        model=entry.model or agent.model,
        effort=entry.effort or agent.effort,
    )


_NUMBERED = re.compile(r"([0-9]+)\s*-\s*(.+)", re.ASCII)


def unfolded(workspace: CodeMachine, agent: WorkspaceAgent) -> list[WorkspaceAgent]:
    """The agent itself, or one for each numbered file of a folder. Raises `WorkspaceInvalid`."""
    if not agent.folder:
        return [agent]
    numbered = []
    for path in workspace.files.matching(f"{_place(workspace, agent)}/*.*"):
        name = _NUMBERED.fullmatch(posixpath.splitext(posixpath.basename(path))[0])
        if name is not None:
            id = check_id(
                name[2].strip().replace(" ", "-"), "agent", SourcePlace(workspace.files.shown(path))
            )
            numbered.append((int(name[1]), id, path))
    if not numbered:
        raise agent.place.error(f"the folder {agent.id!r} has no numbered files such as 01-plan.md")
    return [
        replace(agent, id=id, name=None, prompt=(AgentPart(path, agent.place),), folder=False)
        for _, id, path in sorted(numbered)
    ]


def _place(workspace: CodeMachine, agent: WorkspaceAgent) -> str:
    usual = (f"prompts/templates/{agent.id}", f"prompts/{agent.id}")
    named = agent.prompt or tuple(AgentPart(path, agent.place) for path in usual)
    paths = [workspace.placeholders.in_path(part.path, part.place) for part in named]
    for place in map(workspace.files.find, paths):
        if place is not None and workspace.files.is_directory(place):
            return place
    raise agent.place.error(f"there is no folder {' or '.join(paths)} for {agent.id!r}")
