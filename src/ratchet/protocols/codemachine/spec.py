"""A workspace as a protocol: its spec, and the prompt files that the spec refers to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ratchet.protocols.codemachine.agents import AgentPart, WorkspaceAgent
from ratchet.protocols.codemachine.fields import LARGEST_FILE, LONGEST_PROMPT
from ratchet.protocols.codemachine.files import FOLDER, HOME, SourcePlace, WorkspaceInvalid
from ratchet.protocols.codemachine.tasks import WorkspaceTask, tasks_of
from ratchet.protocols.codemachine.workspace import CodeMachine
from ratchet.protocols.spec import ProtocolSpec, Qa, QaPolicy, StepOutputs, StepSpec

SOURCE = "codemachine"
_MOST_TEXT = 10_000_000


def to_protocol_spec(workspace: CodeMachine) -> ProtocolSpec:
    """The steps of a workspace with their engines, policies and reviews. Raises `WorkspaceInvalid`.

    Prompts are those of `prompt_files`, in the protocol's own folder.
    """
    version = workspace.template.data.get("version")
    return ProtocolSpec(
        steps=tuple(_step(workspace, task) for task in tasks_of(workspace)),
        version=version if isinstance(version, str) else None,
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


def _step(workspace: CodeMachine, task: WorkspaceTask) -> StepSpec:
    agent = task.agent
    return StepSpec(
        id=task.id,
        name=task.name,
        description=agent.description,
        engine_id=agent.engine,
        model=agent.model,
        prompt_ref=_prompt(task),
        qa=_qa(task),
        outputs=StepOutputs(aux=_outputs(workspace, task)),
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


def _qa(task: WorkspaceTask) -> Qa:
    """A step without a judge is not judged. A check is judged by what it says itself."""
    if task.agent.qa is not None:
        return task.agent.qa
    return Qa(QaPolicy.FULL, prompt=_review(task)) if task.checks else Qa(QaPolicy.SKIP)


def _outputs(workspace: CodeMachine, task: WorkspaceTask) -> dict[str, str]:
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


def _prompt(task: WorkspaceTask) -> str:
    return f"prompts/{task.name}.md"


def _review(task: WorkspaceTask) -> str:
    return f"prompts/{task.name}.review.md"


def _agent(agent: WorkspaceAgent) -> dict[str, Any]:
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


_RULES = """\
The text below was written for CodeMachine. Here nobody talks to you while you work, and there is no `codemachine`
command:

- Where it asks you to wait for an answer or a confirmation, decide by what the repository and the specification say.
- Where it asks for a signal such as `directive.json` or `behavior.json`, write no file: say the same in your answer.
- Where it has you call other agents, do yourself what they would do; they are described at the end.
"""
_CHECK = """\
You decide whether the work so far is good enough, or whether steps have to be done again. The text below says how.
It was written for CodeMachine: where it asks for the action `loop`, the verdict is FAIL; where it asks for `continue`,
`complete` or `stop`, the verdict is PASS. Say what is missing, so that the next author of the steps knows it.
"""


def prompt_of(workspace: CodeMachine, task: WorkspaceTask) -> str:
    """The prompt of a step. Raises `WorkspaceInvalid` for files that are missing."""
    own = _own(workspace, task.agent)
    sections = [_RULES, *own]
    if task.fallback is not None:
        fallback = "\n\n".join(_own(workspace, task.fallback))
        sections.append(
            f"# If an earlier attempt at this step was not completed\n\nDo this first:\n\n{fallback}"
        )
    called = list(_called(workspace, "\n".join(own)))
    if called:
        sections.append("# Agents that the text above calls\n\n" + "\n\n".join(called))
    return _bounded(task.agent, (*sections, *_specification(workspace)))


def review_of(workspace: CodeMachine, task: WorkspaceTask) -> str:
    """The prompt of the reviewer of a step that is itself a check."""
    return _bounded(task.agent, (_CHECK, *_own(workspace, task.agent), *_specification(workspace)))


def parts_of(workspace: CodeMachine, agent: WorkspaceAgent) -> list[str]:
    """The files that an agent's prompt is made of, by their names in the workspace."""
    return [path for part in _used(workspace, agent) for path in _paths(workspace, part)]


def _own(workspace: CodeMachine, agent: WorkspaceAgent) -> list[str]:
    """The agent's prompt, then its further prompts, part by part."""
    texts: list[str] = []
    chained: list[str] = []
    length = 0
    for part in _used(workspace, agent):
        for path in _paths(workspace, part):
            text = _text(workspace, path, part.place)
            length += len(text)
            if length > LONGEST_PROMPT:
                raise _too_long(agent)
            (chained if part in agent.chained else texts).append(text)
    later = [
        f"# Part {number} of {len(chained) + 1}, when the part before it is done\n\n{text}"
        for number, text in enumerate(chained, start=2)
    ]
    return [*texts, *later]


def _used(workspace: CodeMachine, agent: WorkspaceAgent) -> list[AgentPart]:
    prompt: Iterable[AgentPart] = agent.prompt or ((agent.mirror,) if agent.mirror else ())
    parts = [*prompt, *agent.chained]
    return [part for part in parts if part.only.holds(workspace.choices, part.place)]


def _paths(workspace: CodeMachine, part: AgentPart) -> list[str]:
    """The file that a part names, or all texts of a directory in their order."""
    path = workspace.placeholders.in_path(part.path, part.place)
    found = workspace.files.find(path)
    if found is None:
        looked = " and ".join(workspace.files.shown(each) for each in workspace.files.candidates(path))
        raise part.place.error(f"the prompt {part.path[:200]!r} does not exist; looked at {looked}")
    if not workspace.files.is_directory(found):
        return [found]
    inside = workspace.files.matching(f"{found}/*.md")
    if not inside:
        raise part.place.error(f"the directory {workspace.files.shown(found)} has no prompts (*.md)")
    return inside


def _text(workspace: CodeMachine, path: str, place: SourcePlace) -> str:
    files = workspace.files
    text = files.text(path, limit=LARGEST_FILE, place=place).strip()
    template = workspace.template
    more = {
        "project_name": template.text("projectName"),
        "selected_track": workspace.choices.track,
        "selected_conditions": ", ".join(sorted(workspace.choices.conditions)) or None,
        "specification": workspace.specification,
    }
    known = {name: value for name, value in more.items() if value is not None}
    return workspace.placeholders.in_text(text, files, SourcePlace(files.shown(path)), known)


def _called(workspace: CodeMachine, text: str) -> Iterator[str]:
    """The sub agents that a text speaks of, with the prompt of each."""
    for agent in usable_sub_agents(workspace):
        if re.search(rf"(?<![\w-]){re.escape(agent.id)}(?![\w-])", text) is None:
            continue
        title = f"## {agent.id}" + (f" ({agent.name})" if agent.name else "")
        yield "\n\n".join(
            part for part in (title, agent.description or "", *_of_sub_agent(workspace, agent)) if part
        )


def usable_sub_agents(workspace: CodeMachine) -> list[WorkspaceAgent]:
    """Those that the workflow names; all of them where it names none."""
    wanted = workspace.workflow.sub_agents if workspace.workflow else None
    return [agent for agent in workspace.sub_agents if wanted is None or agent.id in wanted]


def _of_sub_agent(workspace: CodeMachine, agent: WorkspaceAgent) -> list[str]:
    if agent.prompt or agent.mirror:
        return _own(workspace, agent)
    # CodeMachine keeps what an orchestrator wrote for a sub agent here.
    generated = f"{HOME}/{FOLDER}/agents/{agent.id}.md"
    return [_text(workspace, generated, agent.place)] if workspace.files.exists(generated) else []


def _specification(workspace: CodeMachine) -> list[str]:
    return [] if workspace.specification is None else [f"---\n# Specification\n{workspace.specification}"]


def _bounded(agent: WorkspaceAgent, sections: Iterable[str]) -> str:
    text = "\n\n".join(section.strip() for section in sections) + "\n"
    if len(text) > LONGEST_PROMPT:
        raise _too_long(agent)
    return text


def _too_long(agent: WorkspaceAgent) -> WorkspaceInvalid:
    return agent.place.error(f"the prompt of {agent.id!r} comes to more than {LONGEST_PROMPT} characters")
