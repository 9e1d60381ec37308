"""What a run will do, fixed before it begins: the workflow, its inputs, and the version of each tool."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ratchet.config import Settings
from ratchet.flowkit.execution import StepCall
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import StepType, WorkflowSpec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Misuse, NotFound, RunId
from ratchet.ledger import Run, Transaction, to_json
from ratchet.ledger.runs import get_run
from ratchet.ledger.tools import ToolRow, tools_by_id, versions_by_id
from ratchet.runtime import Runtime, start_run
from ratchet.runtime.job import BACKGROUND, DEFAULT_PRIORITY
from ratchet.tools.call import Occasion, ToolResult
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool, ToolType, folder_of, read_tool
from ratchet.tools.models import asked_model, call_model
from ratchet.workflows.jobs import RUN

_COMPUTING = frozenset({ToolType.PYTHON, ToolType.EXECUTABLE, ToolType.FUNCTION})


@dataclass(frozen=True, slots=True)
class FixedTool:
    """A tool in the version that this run uses, with the numbers of its rows in the ledger."""

    tool: Tool
    tool_id: int
    version_id: int


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a call comes down to: a tool, or a plain question to a model."""

    fixed: FixedTool | None = None
    container: bool = False

    @property
    def tool(self) -> Tool | None:
        return None if self.fixed is None else self.fixed.tool

    @property
    def computes(self) -> bool:
        return self.tool is not None and self.tool.type in _COMPUTING

    @property
    def asks_model(self) -> bool:
        return not self.container if self.tool is None else self.tool.type is ToolType.LLM

    @property
    def pure(self) -> bool:
        """Whether doing it twice does no harm: it sees nothing of the world but what it is given."""
        if self.tool is None:
            return self.container
        if self.tool.function is not None:
            return bool(self.tool.function.extra.get("pure"))
        return self.tool.type is ToolType.PYTHON and not self.tool.network

    def is_cacheable(self, wanted: bool | None) -> bool:
        """Whether an earlier result serves as well. What a model answers does only where that is asked for, or where it
        is asked at temperature 0: two equal questions may be meant to get two answers."""
        if self.tool is None:
            return wanted is True and not self.container
        own = self.tool.type in (ToolType.LLM, ToolType.PYTHON, ToolType.EXECUTABLE)
        if not own or self.tool.network or wanted is False:
            return False
        return self.tool.cache or (wanted is True and self.tool.type is ToolType.LLM)

    async def carry_out(self, call: StepCall, occasion: Occasion) -> ToolResult:
        tool = self.tool
        if tool is None:
            return await call_model(call.prompt or call.step.description, occasion)
        if tool.llm is not None and call.prompt is not None:
            # The step says what is asked; the tool, who is asked and in which role.
            asked = tool.with_body(replace(tool.llm, prompt_template="{prompt}"))
            return await call_tool(replace(asked, input_schema=None), {"prompt": call.prompt}, occasion)
        return await call_tool(tool, call.values, occasion)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """`tools` is by the id of the workflow that uses a tool and the name that it uses."""

    spec: WorkflowSpec
    inputs: Mapping[str, Any]
    tools: Mapping[tuple[str, str], FixedTool]
    folder: Path | None = None
    cached: bool = True
    spread: bool = False
    model: str = ""
    """Whom plain questions go to; another one may answer otherwise."""
    project_id: int | None = None
    _works: dict[tuple[str, str | None, bool], StepWork] = field(default_factory=dict)

    def work(self, call: StepCall) -> StepWork:
        container = call.container or call.step.step_type is StepType.APPROVAL
        key = (call.workflow.workflow_id, call.tool, container)
        if key not in self._works:
            named = (call.workflow.workflow_id, call.tool or "")
            self._works[key] = StepWork(None if container else self.tools.get(named), container)
        return self._works[key]

    def is_pure(self, call: StepCall) -> bool:
        return self.work(call).pure

    def held_tool(self, call: StepCall) -> FixedTool | None:
        """The tool whose workflow a step holds."""
        if call.step.step_type is not StepType.EXISTING_TOOL or call.step.workflow_spec is None:
            return None
        return self.tools.get((call.workflow.workflow_id, call.tool or ""))

    def fallback(self, call: StepCall) -> str | None:
        fixed = self.held_tool(call) or self.work(call).fixed
        named = call.step.fallback_tool or (fixed.tool.fallback_tool if fixed else None)
        return named if (call.workflow.workflow_id, named or "") in self.tools else None

    def cache_key(self, call: StepCall, work: StepWork, settings: Settings) -> str | None:
        """By what is run, by which model, and what it is given; nothing for what must be done again each time."""
        if not (self.cached and work.is_cacheable(call.step.cache)):
            return None
        tool = work.tool
        asks = tool is None or tool.type is ToolType.LLM
        model = asked_model(None if tool is None else tool.llm, settings, os.environ) if asks else None
        # The temperature and the prompts of a tool are part of its hash.
        ran = self.model if tool is None else tool.hash
        prompt = call.prompt or ("" if tool is not None else call.step.description)
        # Each round is done by itself, also where it is given what an earlier one was.
        rounds = [list(call.rounds)] if call.rounds else []
        text = to_json(["step 2", ran, model, prompt, dict(call.values), *rounds])
        return hashlib.sha256(text.encode()).hexdigest()

    def data(self) -> dict[str, Any]:
        """The plan as the run's spec keeps it."""
        return {
            "workflow": write_spec(self.spec),
            "inputs": dict(self.inputs),
            "tools": [
                {
                    "workflow": workflow,
                    "name": name,
                    "version": fixed.version_id,
                    "folder": None if fixed.tool.folder is None else str(fixed.tool.folder),
                }
                for (workflow, name), fixed in self.tools.items()
            ],
            "folder": None if self.folder is None else str(self.folder),
            "cached": self.cached,
            "spread": self.spread,
            "model": self.model,
        }


def tools_of_steps(tx: Transaction, run: Run) -> dict[str, ToolRow]:
    """The tools that the steps of the run's own workflow call, by the names that they use."""
    workflow = run.spec["workflow"].get("workflow_id")
    named = {each["name"]: each["version"] for each in run.spec["tools"] if each["workflow"] == workflow}
    versions = versions_by_id(tx, list(named.values()))
    rows = tools_by_id(tx, [version.tool_id for version in versions.values()])
    return {
        name: rows[versions[number].tool_id]
        for name, number in named.items()
        if number in versions and versions[number].tool_id in rows
    }


def load_plan(tx: Transaction, run: Run) -> RunPlan:
    """The plan of a run, as it was fixed."""
    data = run.spec
    versions = versions_by_id(tx, [each["version"] for each in data["tools"]])
    tools = {}
    for each in data["tools"]:
        version = versions[each["version"]]
        folder = None if each["folder"] is None else Path(each["folder"])
        tool = replace(
            read_tool(version.definition, folder=None, id=each["name"], stored=True), folder=folder
        )
        tools[each["workflow"], each["name"]] = FixedTool(tool, version.tool_id, version.id)
    return RunPlan(
        spec=read_spec(data["workflow"]),
        inputs=data["inputs"],
        tools=tools,
        folder=None if data["folder"] is None else Path(data["folder"]),
        cached=data["cached"],
        spread=data["spread"],
        model=data["model"],
        project_id=run.project_id,
    )


def tool_of_run(tx: Transaction, run_id: int, name: str | None = None) -> Tool:
    """The tool `name` of a run, in the version that the run used; without a name the only one that it has.

    Raises `NotFound` and `Misuse`.
    """
    run = get_run(tx, run_id)
    if run.kind != "workflow" or "workflow" not in (run.spec or {}):
        raise NotFound("run of a workflow", run_id)
    used = load_plan(tx, run).tools
    rows = tools_by_id(tx, [fixed.tool_id for fixed in used.values()])
    found = {
        own: fixed.tool
        for (workflow, own), fixed in used.items()
        if fixed.tool_id in rows and rows[fixed.tool_id].folder == folder_of(workflow)
    }
    if name is not None and name not in found:
        missing = NotFound(f"tool {name} in run", run_id)
        missing.hint = f"it brought {', '.join(found) or 'none'}"
        raise missing
    if name is None and len(found) != 1:
        raise Misuse(
            f"run {run_id} brought {len(found)} tools: {', '.join(found) or 'none'}",
            hint="say which with --tool",
        )
    return found[name] if name is not None else next(iter(found.values()))


def start_workflow(
    tx: Transaction,
    runtime: Runtime,
    plan: RunPlan,
    *,
    simulated: bool = False,
    priority: int | None = None,
    background: bool = False,
    project_id: int | None = None,
    line: str | None = None,
    once: str | None = None,
) -> RunId:
    """A run of a plan that `prepare` has made, and the job that carries it. In the background it gives way.

    See `start_run` for `line` and `once`.
    """
    if priority is None:
        priority = BACKGROUND if background else DEFAULT_PRIORITY
    return start_run(
        tx,
        runtime,
        RUN,
        kind="workflow",
        name=plan.spec.workflow_id,
        spec=plan.data(),
        project_id=project_id,
        simulated=simulated,
        priority=priority,
        line=line,
        once=once,
    )
