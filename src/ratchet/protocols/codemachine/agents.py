"""Agents and modules of a workspace: who does the steps, whom they may call, and what happens after a step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ratchet.protocols.codemachine.fields import ALWAYS, Fields, Only, kind, objects
from ratchet.protocols.codemachine.files import SourcePlace
from ratchet.protocols.codemachine.syntax import ScriptValue
from ratchet.protocols.spec import Qa, QaPolicy

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_CONTROLLER = "controller"
MOST_AGENTS = 200
_MOST_PARTS = 100


@dataclass(frozen=True, slots=True)
class AgentPart:
    """A file that a prompt is made of, as the configuration names it."""

    path: str
    place: SourcePlace
    only: Only = ALWAYS


@dataclass(frozen=True, slots=True)
class WorkspaceAgent:
    """`prompt` comes first; `chained` is what comes after that, part by part.

    A `folder` is no agent itself: each numbered file in it is one.
    """

    id: str
    place: SourcePlace
    name: str | None = None
    description: str | None = None
    prompt: tuple[AgentPart, ...] = ()
    chained: tuple[AgentPart, ...] = ()
    mirror: AgentPart | None = None
    engine: str | None = None
    model: str | None = None
    effort: str | None = None
    modules: tuple[str, ...] = ()
    qa: Qa | None = None
    only: Only = ALWAYS
    folder: bool = False
    controller: bool = False


def read_main_agents(exported: ScriptValue) -> tuple[WorkspaceAgent, ...]:
    """Raises `WorkspaceInvalid`, also for an agent without a prompt."""
    agents = tuple(read_agent(fields, "agent") for fields in objects(exported, "agent"))
    for agent in agents:
        if not agent.prompt and not agent.folder and agent.mirror is None:
            raise agent.place.error(
                f"agent {agent.id!r} has no promptPath", hint="give the path of the file with its prompt"
            )
    return _different(agents)


def read_sub_agents(exported: ScriptValue) -> tuple[WorkspaceAgent, ...]:
    return _different(tuple(read_agent(fields, "sub agent") for fields in objects(exported, "sub agent")))


def read_agent(fields: Fields, called: str) -> WorkspaceAgent:
    """One entry, whatever else it may be besides an agent."""
    id = _read_id(fields, called)
    named = fields.named(f"{called} {id!r}")
    return WorkspaceAgent(
        id=id,
        place=fields.place,
        name=named.text("name"),
        description=named.text("description"),
        prompt=read_parts(named, "promptPath", "prompt", "path"),
        chained=read_parts(named, "chainedPromptsPath"),
        mirror=next(iter(read_parts(named, "mirrorPath")), None),
        engine=named.text("engineId", "engine_id", "engine"),
        model=named.text("model"),
        effort=named.text("modelReasoningEffort"),
        modules=named.texts("moduleId", "module_id", "module"),
        qa=_qa(named),
        only=Only.of(named),
        folder=named.text("type") == "folder",
        controller=named.text("role") == _CONTROLLER,
    )


def check_id(id: str, called: str, place: SourcePlace) -> str:
    """What an agent or a module is called is also a part of file names. Raises `WorkspaceInvalid`."""
    if _ID.fullmatch(id) is None or ".." in id:
        raise place.error(
            f"{id[:60]!r} cannot be the id of {called}",
            hint="use letters, digits, dashes, dots and underscores",
        )
    return id


def _read_id(fields: Fields, called: str) -> str:
    id = fields.text("id", *(("module_id", "moduleId", "name") if called == "module" else ("agentId",)))
    if id is None:
        raise fields.place.error(f"{fields.called} has no id")
    return check_id(id, called, fields.place)


def _different(agents: tuple[WorkspaceAgent, ...]) -> tuple[WorkspaceAgent, ...]:
    """Raises `WorkspaceInvalid` for the second of two with one id, and when there are too many."""
    if len(agents) > MOST_AGENTS:
        raise agents[MOST_AGENTS].place.error(f"there are more than {MOST_AGENTS} agents")
    _check_ids(agents, "agents")
    return agents


def _check_ids(agents: Iterable[WorkspaceAgent], called: str) -> None:
    seen: set[str] = set()
    for agent in agents:
        if agent.id in seen:
            raise agent.place.error(f"there are two {called} {agent.id!r}")
        seen.add(agent.id)


def read_parts(fields: Fields, *names: str) -> tuple[AgentPart, ...]:
    """One path, or several; each as a text, or as an object that says when it is used."""
    found = []
    values = fields.values(*names)
    if len(values) > _MOST_PARTS:
        raise fields.place.error(f"{names[0]} of {fields.called} has more than {_MOST_PARTS} paths")
    for value in values:
        if isinstance(value.data, str) and value.data.strip():
            found.append(AgentPart(value.data, value.place))
            continue
        inner = Fields.of(value, f"{names[0]} of {fields.called}")
        path = inner.text("path")
        if path is None:
            raise inner.place.error(f"{inner.called} has no path")
        found.append(AgentPart(path, value.place, Only.of(inner)))
    return tuple(found)


def _qa(fields: Fields) -> Qa | None:
    """How its steps are judged, if that is said. CodeMachine itself has no word for it."""
    value = fields.get("qa")
    if value is None:
        return None
    if isinstance(value.data, str):
        return Qa(_policy(value))
    inner = Fields.of(value, f"qa of {fields.called}")
    policy = inner.get("policy")
    return Qa(
        policy=QaPolicy.FULL if policy is None else _policy(policy),
        model=inner.text("model"),
        engine_id=inner.text("engineId", "engine_id", "engine"),
    )


def _policy(value: ScriptValue) -> QaPolicy:
    try:
        return QaPolicy(str(value.data))
    except ValueError:
        raise value.place.error(f"qa can be full, light or skip, not {str(value.data)[:40]!r}") from None


_TYPES = ("loop", "trigger")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A loop goes back over steps, a trigger has another agent's step done. `skip` has indexes and ids."""

    type: str
    place: SourcePlace
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

    agent: WorkspaceAgent
    behaviour: Behaviour | None

    @property
    def id(self) -> str:
        return self.agent.id

    def belongs_to(self, agent: WorkspaceAgent) -> bool:
        """Whether its behaviour is that of an agent: because the agent names it, or because it names the agent."""
        behaviour = self.behaviour
        return behaviour is not None and (
            self.id in agent.modules
            or behaviour.target_agent == agent.id
            or (behaviour.type == "trigger" and behaviour.trigger_agent == agent.id)
        )


def read_modules(exported: ScriptValue) -> tuple[Module, ...]:
    """Raises `WorkspaceInvalid`, also for a behaviour that is no object or of no known type."""
    modules = tuple(_module(fields) for fields in objects(exported, "module"))
    _check_ids((module.agent for module in modules), "modules")
    return modules


def _module(fields: Fields) -> Module:
    agent = read_agent(fields, "module")
    inner = fields.named(f"module {agent.id!r}").fields("behavior", "behaviour")
    return Module(agent, None if inner is None else _behaviour(inner))


def _behaviour(fields: Fields) -> Behaviour:
    type = fields.text("type")
    if type not in _TYPES:
        given = "is missing" if type is None else f"is {type[:40]!r}"
        raise fields.place.error(f"the type of {fields.called} {given}; it can be {' or '.join(_TYPES)}")
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
