"""An export as a folder, and what carries out the steps of the workflow in it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import SpecError, StepFailed, StepHeld
from ratchet.flowkit.execution import Executed, ExecutionJournal, Inside, Result, StepCall, StepError
from ratchet.flowkit.executor import execute
from ratchet.flowkit.inputs import with_defaults
from ratchet.flowkit.reader import read_text
from ratchet.flowkit.spec import StepType, ToolDefinition, WorkflowSpec
from ratchet.flowkit.value_schema import first_mistake, mistakes

from .tools import call_model, call_program, call_python, call_service

# Most steps wait for a service; those that compute share the processors all the same.
_AT_ONCE = 8
_ALONE = frozenset({"embedded", "wasm"})
_INDEX = re.compile(r"\[\d+\]")
RECORDED = frozenset({"llm", "openapi", "approval"})
"""What a recording can answer for: steps that ask an outside service."""


@dataclass(frozen=True)
class ExportRecording:
    """One run: what it was given, what it came to, and what models answered in it, by the hash of what they got."""

    run: int
    simulated: bool
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict)

    def answer(self, name: str, values: Mapping[str, Any]) -> Any:
        """Raises `KeyError` for what was not recorded."""
        key = next((key for key in keys_of(name, values) if key in self.answers), name)
        return self.answers[key]


def keys_of(name: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Under which keys an answer is kept: for this item of a list, since a model may answer the same question in two
    ways, and then for any item that is given the same."""
    return _key(name, values), _key(_INDEX.sub("", name), values)


def _key(name: str, values: Mapping[str, Any]) -> str:
    """Which question this is: the place in the workflow and everything that the step is given."""
    text = json.dumps([name, dict(values)], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_recording(data: Mapping[str, Any]) -> ExportRecording:
    return ExportRecording(data["run"], data["simulated"], data["inputs"], data["outputs"], data["answers"])


def write_recording(recording: ExportRecording) -> dict[str, Any]:
    return {
        "run": recording.run,
        "simulated": recording.simulated,
        "inputs": dict(recording.inputs),
        "outputs": dict(recording.outputs),
        "answers": dict(recording.answers),
    }


@dataclass(frozen=True)
class Standalone:
    """See `flowkit.StepCaller`. `files` holds the scripts of tools, a folder for each; `models` says who is asked."""

    files: Path
    models: Mapping[str, str] = field(default_factory=dict)
    recording: ExportRecording | None = None
    approved: frozenset[str] = frozenset()
    answers: Mapping[str, Any] = field(default_factory=dict)
    """What people answer to the steps that ask for more than yes or no."""

    @property
    def recorded(self) -> bool:
        """Whether models and services are answered for by a recording that has answers."""
        return self.recording is not None and bool(self.recording.answers)

    async def call(self, call: StepCall) -> Result:
        tool = self._tool(call)
        kind = kind_of(call, tool)
        if self.recording is not None and kind in RECORDED:
            return _recorded(self.recording, call)
        if kind == "approval":
            return self._approval(call)
        seconds = call.step.timeout if tool is None else min(call.step.timeout, tool.timeout)
        # What the step asks in its own words need not fit what the tool would be given.
        if tool is not None and not (kind == "llm" and call.prompt is not None):
            call = _with_inputs(call, tool)
        result = await self._carry_out(kind, call, tool, seconds)
        if tool is not None:
            _check(f"the answer of tool {tool.tool_id} cannot be used", result.value, tool, "output_schema")
        return result

    async def around(self, call: StepCall, inside: Inside) -> Result | StepError | None:
        tool = self._tool(call)
        if tool is None:
            return await inside(call.values)
        call = _with_inputs(call, tool)
        try:
            async with asyncio.timeout(min(call.step.timeout, tool.timeout)):
                end = await inside(call.values)
        except TimeoutError:
            raise StepFailed(f"tool {tool.tool_id} did not end in time") from None
        if isinstance(end, Result):
            _check(f"the answer of tool {tool.tool_id} cannot be used", end.value, tool, "output_schema")
        return end

    async def sub_workflow(self, call: StepCall) -> WorkflowSpec:
        raise StepFailed(f"the workflow {call.step.workflow_path} is not part of this export", final=True)

    def fallback(self, call: StepCall) -> str | None:
        tool = self._tool(call)
        named = call.step.fallback_tool or (tool.fallback_tool if tool else None)
        return named if named in call.workflow.tool_definitions else None

    async def _carry_out(
        self, kind: str, call: StepCall, tool: ToolDefinition | None, seconds: float
    ) -> Result:
        if kind == "llm":
            return await call_model(call, tool, self.models, seconds)
        assert tool is not None
        if kind == "openapi":
            return await call_service(tool, call.values, seconds)
        with tempfile.TemporaryDirectory(prefix="workflow-", ignore_cleanup_errors=True) as folder:
            if kind == "python":
                return await call_python(tool, call.values, Path(folder), seconds)
            if kind == "executable":
                files = self.files / tool.tool_id
                return await call_program(tool, call.values, files, Path(folder), seconds)
        raise StepFailed(f"a tool of type {kind} cannot run here", final=True)

    def _approval(self, call: StepCall) -> Result:
        schema = call.step.answer_schema
        if schema is not None:
            return self._answer(call, schema)
        if call.name in self.approved:
            return Result({"approved": True, "comment": None, "by": "command line"})
        raise StepHeld(
            f"waits for a person: {call.prompt or call.step.description}; continue with --approve {call.name}"
        )

    def _answer(self, call: StepCall, schema: Mapping[str, Any]) -> Result:
        question = call.prompt or call.step.description
        if call.name not in self.answers:
            raise StepHeld(f"waits for a person: {question}; continue with --answer {call.name}=JSON")
        problem = first_mistake(self.answers[call.name], schema)
        if problem is not None:
            raise StepFailed(f"the answer to {question!r} does not fit: {problem}", final=True)
        return Result(self.answers[call.name])

    def _tool(self, call: StepCall) -> ToolDefinition | None:
        if call.tool is None or call.step.step_type in (StepType.APPROVAL, StepType.SUB_WORKFLOW):
            return None
        tool = call.workflow.tool_definitions.get(call.tool)
        if tool is None and call.step.step_type is not StepType.LLM_CALL:
            raise StepFailed(f"the tool {call.tool} is not part of this export", final=True)
        return tool


def kind_of(call: StepCall, tool: ToolDefinition | None) -> str:
    """What a step comes down to: an approval, a type of tool, or a plain question to a model."""
    if call.step.step_type is StepType.APPROVAL:
        return "approval"
    return "llm" if tool is None else tool.tool_type


def _recorded(recording: ExportRecording, call: StepCall) -> Result:
    try:
        return Result(recording.answer(call.name, call.values), {"recorded": True})
    except KeyError:
        shown = json.dumps(dict(call.values), ensure_ascii=False)
        raise StepFailed(
            f"no answer is recorded for {shown[:200]}",
            final=True,
            hint="only what the recorded run was given can be answered without a model",
        ) from None


def _with_inputs(call: StepCall, tool: ToolDefinition) -> StepCall:
    """The call with the defaults of the tool's inputs filled in. Raises `StepFailed` if they do not fit then."""
    values = with_defaults(dict(call.values), tool.extra.get("input_schema"))
    _check(f"the inputs of tool {tool.tool_id} do not fit", values, tool, "input_schema")
    return replace(call, values=values)


def _check(problem: str, value: Any, tool: ToolDefinition, key: str) -> None:
    wrong = next(mistakes(value, tool.extra.get(key, True)), None)
    if wrong is not None:
        raise StepFailed(f"{problem}: {wrong}", final=key == "input_schema")


@dataclass(frozen=True)
class Package:
    folder: Path
    target: str
    spec: WorkflowSpec
    models: Mapping[str, str]
    recording: ExportRecording | None

    def caller(
        self,
        *,
        recorded: bool = False,
        approved: Iterable[str] = (),
        answers: Mapping[str, Any] | None = None,
    ) -> Standalone:
        """Who carries out the steps. Where there is no model, or `recorded` is asked for, the recording answers."""
        if recorded and self.recording is None:
            raise SpecError(["nothing is recorded here; export the workflow with a run"])
        replaying = recorded or self.target in _ALONE
        recording = (self.recording or _nothing()) if replaying else None
        return Standalone(self.folder / "files", self.models, recording, frozenset(approved), answers or {})

    async def run(
        self, inputs: Mapping[str, Any], caller: Standalone, journal: ExecutionJournal | None = None
    ) -> Executed:
        return await execute(self.spec, inputs, caller, journal=journal, concurrency=_AT_ONCE)


def read_package(folder: Path) -> Package:
    """Raises `SpecError` for a workflow that cannot be read."""
    about = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    recorded = folder / "recorded.json"
    return Package(
        folder,
        about["target"],
        read_text((folder / "workflow.json").read_bytes()),
        about["models"],
        read_recording(json.loads(recorded.read_text(encoding="utf-8"))) if recorded.exists() else None,
    )


def _nothing() -> ExportRecording:
    return ExportRecording(0, False, {}, {})
