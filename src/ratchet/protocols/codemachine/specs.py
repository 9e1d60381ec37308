"""A workspace as a protocol: its spec, and the prompt files that the spec refers to."""

from __future__ import annotations

from typing import Any

from ratchet.protocols.codemachine.agents import Agent
from ratchet.protocols.codemachine.prompts import parts_of, prompt_of, review_of, usable_sub_agents
from ratchet.protocols.codemachine.tasks import Task, tasks_of
from ratchet.protocols.codemachine.workspace import CodeMachine
from ratchet.protocols.spec import Outputs, ProtocolSpec, Qa, QaPolicy, StepSpec

SOURCE = "codemachine"
_MOST_TEXT = 10_000_000


def to_protocol_spec(workspace: CodeMachine) -> ProtocolSpec:
    """The steps of a workspace with their engines, policies and reviews. Raises `WorkspaceInvalid`.

    Prompts are those of `prompt_files`, in the protocol's own folder.
    """
    tasks = tasks_of(workspace)
    return ProtocolSpec(
        steps=tuple(_step(workspace, task) for task in tasks),
        version=_version(workspace),
        placeholders=workspace.placeholders.written,
        template=workspace.template.data,
        metadata=_said(
            source=SOURCE,
            workflow=workspace.workflow.file if workspace.workflow else None,
            track=workspace.choices.track,
            conditions=sorted(workspace.choices.conditions),
            sub_agents=[_agent(agent) for agent in usable_sub_agents(workspace)],
        ),
    )


def prompt_files(workspace: CodeMachine) -> dict[str, str]:
    """The text of every prompt by its path in the protocol's folder. Raises `WorkspaceInvalid`."""
    files: dict[str, str] = {}
    for task in tasks_of(workspace):
        files[_prompt(task)] = prompt_of(workspace, task)
        if task.checks:
            files[_review(task)] = review_of(workspace, task)
        if sum(map(len, files.values())) > _MOST_TEXT:
            raise task.agent.place.error(f"all prompts together come to more than {_MOST_TEXT} characters")
    return files


def _step(workspace: CodeMachine, task: Task) -> StepSpec:
    agent = task.agent
    return StepSpec(
        id=task.id,
        name=task.name,
        description=agent.description,
        engine_id=agent.engine,
        model=agent.model,
        prompt_ref=_prompt(task),
        qa=_qa(task),
        outputs=Outputs(aux=_outputs(workspace, task)),
        step_type="qa" if task.checks else None,
        policies=task.policies,
        metadata=_said(
            source=SOURCE,
            # Many of CodeMachine's agents only look, or write down what they think.
            allow_empty=True,
            agent=_agent(agent),
            prompts=[workspace.files.shown(path) for path in parts_of(workspace, agent)],
            heading=task.heading,
            execute_once=task.once or None,
            fallback=task.fallback.id if task.fallback else None,
        ),
    )


def _qa(task: Task) -> Qa:
    """Nobody judges a step that nobody was said to judge. A check is judged by what it says itself."""
    if task.agent.qa is not None:
        return task.agent.qa
    return Qa(QaPolicy.FULL, prompt=_review(task)) if task.checks else Qa(QaPolicy.SKIP)


def _outputs(workspace: CodeMachine, task: Task) -> dict[str, str]:
    """What the session says is kept like CodeMachine keeps it, and where the agent wants it mirrored to."""
    aux = {SOURCE: f"outputs/{task.id}.md"}
    mirror = task.agent.mirror
    if mirror is not None and task.agent.prompt:
        path = workspace.placeholders.in_path(mirror.path, mirror.place)
        if workspace.files.find(path) is not None:
            raise mirror.place.error(
                f"the mirrorPath {mirror.path[:200]!r} of agent {task.agent.id!r} is a file that exists",
                hint="what the agent says would overwrite it: name another file, or leave out promptPath",
            )
        aux["mirror"] = workspace.files.shown(path)
    return aux


def _prompt(task: Task) -> str:
    return f"prompts/{task.name}.md"


def _review(task: Task) -> str:
    return f"prompts/{task.name}.review.md"


def _version(workspace: CodeMachine) -> str | None:
    version = workspace.template.data.get("version")
    return version if isinstance(version, str) else None


def _agent(agent: Agent) -> dict[str, Any]:
    return _said(
        id=agent.id,
        name=agent.name,
        description=agent.description,
        engine_id=agent.engine,
        model=agent.model,
        reasoning=agent.effort,
    )


def _said(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, [], {})}
