"""Modules of a workspace: what is to happen after a step, besides the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ratchet.protocols.codemachine.agents import Agent, read_agent
from ratchet.protocols.codemachine.errors import Place
from ratchet.protocols.codemachine.fields import Fields, kind, objects
from ratchet.protocols.codemachine.values import Value

_TYPES = ("loop", "trigger")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A loop goes back over steps, a trigger has another agent's step done. `skip` has indexes and ids."""

    type: str
    place: Place
    action: str | None = None
    step_back: int | None = None
    max_iterations: int | None = None
    skip: tuple[int | str, ...] = ()
    trigger_agent: str | None = None
    target_agent: str | None = None
    condition: Any = None
    conditions: Any = None


@dataclass(frozen=True, slots=True)
class Module:
    """`agent` is who does it where it is a step of its own."""

    agent: Agent
    behaviour: Behaviour | None

    @property
    def id(self) -> str:
        return self.agent.id

    def belongs_to(self, agent: Agent) -> bool:
        """Whether its behaviour is that of an agent: because the agent names it, or because it names the agent."""
        behaviour = self.behaviour
        return behaviour is not None and (
            self.id in agent.modules
            or behaviour.target_agent == agent.id
            or (behaviour.type == "trigger" and behaviour.trigger_agent == agent.id)
        )


def read_modules(exported: Value) -> tuple[Module, ...]:
    """Raises `WorkspaceInvalid`, also for a behaviour that is no object or of no known type."""
    modules = tuple(_module(fields) for fields in objects(exported, "module"))
    seen: set[str] = set()
    for module in modules:
        if module.id in seen:
            raise module.agent.place.error(f"there are two modules {module.id!r}")
        seen.add(module.id)
    return modules


def _module(fields: Fields) -> Module:
    agent = read_agent(fields, "module")
    inner = fields.named(f"module {agent.id!r}").fields("behavior", "behaviour")
    return Module(agent, None if inner is None else _behaviour(inner))


def _behaviour(fields: Fields) -> Behaviour:
    type = fields.text("type")
    if type not in _TYPES:
        told = "is missing" if type is None else f"is {type[:40]!r}"
        raise fields.place.error(f"the type of {fields.called} {told}; it can be {' or '.join(_TYPES)}")
    return Behaviour(
        type=type,
        place=fields.place,
        action=fields.text("action"),
        step_back=fields.whole("stepBack", "step_back", "steps"),
        max_iterations=fields.whole("maxIterations", "max_iterations"),
        skip=skipped(fields, "skip", "skipSteps", "skip_steps"),
        trigger_agent=fields.text("triggerAgentId", "trigger_agent_id"),
        target_agent=fields.text("targetAgentId", "target_agent_id"),
        condition=fields.plain("condition"),
        conditions=fields.plain("conditions"),
    )


def skipped(fields: Fields, *names: str) -> tuple[int | str, ...]:
    """Steps that a loop leaves out, by index or by the id of their agent."""
    found: list[int | str] = []
    for value in fields.values(*names):
        if isinstance(value.data, bool) or not isinstance(value.data, int | str):
            raise value.place.error(
                f"{names[0]} of {fields.called} has {kind(value)}; it can have indexes and ids of agents"
            )
        found.append(value.data)
    return tuple(found)
