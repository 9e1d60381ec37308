"""Makes a workflow portable: every tool that it uses inside it, in the form that the runner of an export reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ratchet.flowkit.spec import StepType, ToolDefinition, WorkflowSpec, WorkflowStep
from ratchet.tools.definition import LlmBody, Tool
from ratchet.workflows.exports.carrying import Unfit, carried_files
from ratchet.workflows.exports.definitions import definition_of
from ratchet.workflows.exports.fitness import check_tool
from ratchet.workflows.exports.runner.llm_tools import model_name
from ratchet.workflows.exports.target import Target

Tools = Mapping[tuple[str, str], Tool]
"""By the id of the workflow that uses a tool and the name that it uses."""


class Asking(NamedTuple):
    """A step that asks a model, the name that it has for it, and the tool that chooses it, if there is one."""

    step: str
    name: str
    body: LlmBody


@dataclass(slots=True)
class Embedding:
    """Gathers what an export carries, and why it cannot, step by step."""

    target: Target
    tools: Tools
    reasons: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    requirements: list[tuple[str, ...]] = field(default_factory=list)
    """What the workflows and each tool that goes along need installed."""
    asking: list[Asking] = field(default_factory=list)

    def embed(self, spec: WorkflowSpec, *, prefix: str = "") -> WorkflowSpec:
        """`spec` with its tools inside. What stands in the way is in `reasons` afterwards."""
        definitions: dict[str, ToolDefinition] = {}
        self.requirements.append(tuple(map(_requirement, spec.pip_packages)))
        steps = []
        for step in spec.steps:
            name = prefix + step.step_id
            if step.workflow_spec is not None:
                step = replace(step, workflow_spec=self.embed(step.workflow_spec, prefix=f"{name}/"))
            self._look_at(step, name)
            for tool_name in self._names(spec, step):
                self._add(definitions, spec, step, name, tool_name)
            steps.append(replace(step, tool_path=None, generate_tool=False))
        inside = dict(sorted(definitions.items()))
        return replace(spec, portable=True, steps=tuple(steps), tool_definitions=inside)

    def _look_at(self, step: WorkflowStep, name: str) -> None:
        if step.step_type is StepType.APPROVAL and self.target is Target.EMBEDDED:
            self.reasons.append(f"step {name} waits for a person, and nobody is there")
        if step.step_type is StepType.LLM_CALL and not step.tool_name:
            self.asking.append(Asking(name, "", LlmBody()))

    def _names(self, spec: WorkflowSpec, step: WorkflowStep) -> Iterator[str]:
        """The tool of a step and those that stand in for it."""
        if step.step_type is StepType.APPROVAL:
            return
        waiting = [step.fallback_tool]
        if step.step_type is not StepType.SUB_WORKFLOW:
            waiting.insert(0, step.tool_name)
        seen = set()
        while waiting:
            name = waiting.pop(0)
            tool = None if name is None else self.tools.get((spec.workflow_id, name))
            if name is not None and tool is not None and name not in seen:
                seen.add(name)
                waiting.append(tool.fallback_tool)
                yield name

    def _add(
        self,
        definitions: dict[str, ToolDefinition],
        spec: WorkflowSpec,
        step: WorkflowStep,
        name: str,
        tool_name: str,
    ) -> None:
        tool = self.tools[spec.workflow_id, tool_name]
        try:
            check_tool(tool, self.target)
            if tool.workflow is not None and (step.workflow_spec is None or tool_name != step.tool_name):
                raise Unfit(
                    "is a workflow, which can go along as a step and not in the place of another tool"
                )
            definition = definition_of(tool, tool_name, max(step.timeout for step in spec.steps))
            if tool.executable is not None:
                self._carry(tool_name, carried_files(tool, tool.executable))
        except Unfit as why:
            self.reasons.append(f"step {name}: tool {tool_name} {why}")
            return
        definitions[tool_name] = definition
        self.requirements.append(tool.requirements)
        if tool.llm is not None:
            self.asking.append(Asking(name, model_name(definition.extra.get("llm", {})), tool.llm))

    def _carry(self, tool_name: str, files: Mapping[str, bytes]) -> None:
        for file, content in files.items():
            if self.files.setdefault(f"files/{tool_name}/{file}", content) != content:
                raise Unfit(f"has the script {file}, and another tool of that name has a different one")


def _requirement(package: Mapping[str, Any]) -> str:
    """A package as a workflow lists it; a plain version means exactly that one."""
    version = str(package.get("version") or "")
    return f"{package['name']}{'==' if version[:1].isdigit() else ''}{version}"
