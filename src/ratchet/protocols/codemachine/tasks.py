"""The steps that a workspace comes to: numbered, with their loops and triggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.protocols.codemachine.agents import Agent
from ratchet.protocols.codemachine.errors import WorkspaceInvalid
from ratchet.protocols.codemachine.modules import Behaviour, Module
from ratchet.protocols.codemachine.slots import Slot, slots_of
from ratchet.protocols.codemachine.workspace import CodeMachine

MOST_TASKS = 200


@dataclass(frozen=True, slots=True)
class Task:
    """One step. `name` is like `00-plan`; `id` is that of its agent, unless another step has the same agent.

    `fallback` is the agent whose prompt mends what an attempt left unfinished. `checks` says that the step is itself a
    check that loops back when it fails.
    """

    index: int
    id: str
    name: str
    agent: Agent
    policies: tuple[dict[str, Any], ...]
    heading: str | None = None
    fallback: Agent | None = None
    once: bool = False
    checks: bool = False


def tasks_of(workspace: CodeMachine) -> tuple[Task, ...]:
    """Raises `WorkspaceInvalid` when there are none, and for ids that nobody has."""
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


def _task(workspace: CodeMachine, slots: Sequence[Slot], index: int, *, alone: bool) -> Task:
    slot = slots[index]
    name = f"{index:02d}-{slot.agent.id}"
    behaviour = slot.module.behaviour if slot.module else None
    return Task(
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


def _fallback(workspace: CodeMachine, slot: Slot) -> Agent | None:
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
