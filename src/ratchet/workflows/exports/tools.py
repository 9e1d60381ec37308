"""Makes a workflow portable: every tool that it uses inside it, in the form that the runner of an
export reads, for the target where it is to run.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.flowkit.spec import StepType, ToolDefinition, WorkflowSpec, WorkflowStep
from ratchet.flowkit.value_schema import unknown_keywords
from ratchet.kernel import Misuse, decoded
from ratchet.tools.call import ToolCallFailed
from ratchet.tools.definition import ExecutableBody, FunctionBody, LlmBody, OpenApiBody, Tool, ToolType
from ratchet.tools.functions import announced_function
from ratchet.tools.openapi import server_of
from ratchet.tools.plain import pure
from ratchet.tools.programs import has_function
from ratchet.workflows.export_runner.tools import AUTH_KEYS, AUTH_TYPES, PYTHONS, model_name


class NotExportable(Misuse):
    """`reasons` has one sentence for each step that stands in the way."""

    def __init__(self, target: Target, reasons: Sequence[str]) -> None:
        super().__init__(
            f"this workflow cannot be exported for {target}: {'; '.join(reasons)}",
            hint="change these steps, choose another target, or name what is missing",
        )
        self.target = target
        self.reasons = tuple(reasons)


class Target(StrEnum):
    """`cloud` asks hosted models, `edge` an Ollama nearby; `embedded` and `wasm` ask none and need no network, and
    `wasm` runs in WebAssembly."""

    CLOUD = "cloud"
    EDGE = "edge"
    EMBEDDED = "embedded"
    WASM = "wasm"

    @property
    def providers(self) -> tuple[str, ...]:
        """Who may answer the model calls there."""
        return {Target.CLOUD: ("openai", "anthropic"), Target.EDGE: ("ollama",)}.get(self, ())

    @property
    def alone(self) -> bool:
        """Whether there is nothing there but Python: no models, services, people or packages."""
        return not self.providers


def read_target(text: str) -> Target:
    """Raises `Misuse` for a target that does not exist."""
    try:
        return Target(text)
    except ValueError:
        known = [target.value for target in Target]
        hint = f"choose {', '.join(known[:-1])} or {known[-1]}"
        raise Misuse(f"there is no export for {text!r}", hint=hint) from None


# What a definition has fields for, and what only matters where tools are chosen and versioned.
_ELSEWHERE = frozenset(
    (
        *(
            "id",
            "type",
            "name",
            "description",
            "requirements",
            "timeout",
            "fallback_tool",
            "python",
            "function",
            # The step that calls it holds it.
            "workflow",
        ),
        *("examples", "track_usage", "priority", "version", "change_type", "breaking_changes"),
    )
)
Tools = Mapping[tuple[str, str], Tool]
"""By the id of the workflow that uses a tool and the name that it uses."""


def definition_of(tool: Tool, name: str, seconds: float) -> ToolDefinition:
    """`tool` as `name`. `seconds` is its limit if it has none of its own. Raises `Unfit`."""
    extra: dict[str, Any] = {key: value for key, value in tool.data.items() if key not in _ELSEWHERE}
    kind, source, entry = tool.type.value, None, None
    if tool.function is not None:
        kind = "python"
        source, entry = source_of_function(tool.function)
    elif tool.python is not None:
        source, entry = tool.python.source, tool.python.entry
    if source is not None and entry is not None:
        extra["python"] = {"entry": entry} if has_function(source, entry) else {"script": True}
    own = None if tool.llm is None else tool.llm.temperature
    return ToolDefinition(
        tool_id=name,
        name=tool.name,
        description=tool.description,
        tool_type=kind,
        temperature=ToolDefinition.temperature if own is None else own,
        source_code=source,
        requirements=tool.requirements,
        timeout=tool.timeout or seconds,
        fallback_tool=tool.fallback_tool,
        extra=dict(sorted(extra.items())),
    )


def check_tool(tool: Tool, target: Target) -> None:
    """Raises `Unfit` with the reason."""
    for schema in (tool.input_schema, tool.output_schema):
        if unknown := unknown_keywords(schema):
            raise NotPortable(
                f"has a schema with {', '.join(sorted(unknown))}, which cannot be checked there"
            )
    if tool.type is ToolType.MCP:
        raise NotPortable("belongs to an MCP server, which an export cannot bring along")
    if tool.openapi is not None:
        _check_service(tool.openapi)
    if target.alone:
        _check_alone(tool)
    if target is Target.WASM and tool.executable is not None:
        raise NotPortable("is a program, and there are no processes in WebAssembly")


def _check_alone(tool: Tool) -> None:
    if tool.requirements:
        raise NotPortable("needs packages, and there is only the standard library")
    if tool.network:
        raise NotPortable("needs the network, and there is none")
    if tool.executable is not None and tool.executable.command not in PYTHONS:
        raise NotPortable("is a program of this machine, and there only Python is sure to be found")


def _check_service(body: OpenApiBody) -> None:
    if body.spec is None and body.spec_url is not None:
        raise NotPortable("has its description somewhere else; save it and name the file in spec_path")
    if body.base_url is None and server_of(body.spec) is None:
        raise NotPortable("does not say where its service is; set openapi.base_url")
    kind = body.auth.get("type", "bearer" if body.auth else "none")
    known = set(body.auth) <= AUTH_KEYS and kind in AUTH_TYPES
    if not known or (kind != "none" and "variable" not in body.auth):
        raise NotPortable(
            f"has an openapi.auth that an export does not know; use {', '.join(sorted(AUTH_KEYS))}"
        )


class NotPortable(Exception):
    """Why a tool cannot go along, as the end of a sentence about it."""


def carried_files(tool: Tool, body: ExecutableBody) -> dict[str, bytes]:
    """The scripts of a program by their names, as they were when the tool was added. Raises `Unfit`."""
    if "/" in body.command:
        raise NotPortable(f"runs {body.command}, which lies on this machine only")
    found = {}
    for name, wanted in body.files.items():
        if tool.folder is None:
            raise NotPortable(f"has the script {name}, and its folder is unknown")
        path = tool.folder / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise NotPortable(f"has the script {name}, which cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != wanted:
            raise NotPortable(f"has the script {name}, which has changed since the tool was added")
        for module in _imported(decoded(content)) if path.suffix == ".py" else ():
            if (path.parent / f"{module}.py").exists() or (path.parent / module).is_dir():
                raise NotPortable(f"has the script {name}, which imports {module} from beside it")
        found[name] = content
    return found


def source_of_function(body: FunctionBody) -> tuple[str, str]:
    """The module of a function as text, and the function's name in it. Raises `Unfit`."""
    try:
        function = announced_function(body.entry)
        source = _without_marks(Path(inspect.getfile(function)).read_text(encoding="utf-8"))
    except (ToolCallFailed, OSError, TypeError, SyntaxError, UnicodeDecodeError) as error:
        raise NotPortable(f"is a function whose source cannot be read: {error}") from error
    if inspect.iscoroutinefunction(function):
        raise NotPortable("is a coroutine, which needs an event loop")
    defined = {each.name for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)}
    if function.__name__ not in defined:
        raise NotPortable("is a function that is made while its module is loaded")
    for module in _imported(source):
        if module not in sys.stdlib_module_names:
            raise NotPortable(f"is a function of a module that imports {module or 'its own package'}")
    return source, function.__name__


def _without_marks(source: str) -> str:
    """The source without `@pure`, which means something to Ratchet only."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        marks: list[ast.ImportFrom | ast.expr] = []
        if isinstance(node, ast.ImportFrom) and node.module == pure.__module__:
            marks = [node]
        elif isinstance(node, ast.FunctionDef):
            marks = [each for each in node.decorator_list if ast.unparse(each) == pure.__name__]
        for mark in marks:
            lines[mark.lineno - 1] = ""
    return "".join(lines)


def _imported(source: str) -> Iterator[str]:
    """The first part of the name of each module that a source imports; nothing for one of its own package."""
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "" if node.level else (node.module or "").partition(".")[0]


class ModelUse(NamedTuple):
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
    asking: list[ModelUse] = field(default_factory=list)

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
        if step.step_type is StepType.APPROVAL and self.target.alone:
            self.reasons.append(f"step {name} waits for a person, and there is none")
        if step.step_type is StepType.LLM_CALL and not step.tool_name:
            self.asking.append(ModelUse(name, "", LlmBody()))

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
                raise NotPortable(
                    "is a workflow, which can go along as a step and not in the place of another tool"
                )
            definition = definition_of(tool, tool_name, max(step.timeout for step in spec.steps))
            if tool.executable is not None:
                self._carry(tool_name, carried_files(tool, tool.executable))
        except NotPortable as why:
            self.reasons.append(f"step {name}: tool {tool_name} {why}")
            return
        definitions[tool_name] = definition
        self.requirements.append(tool.requirements)
        if tool.llm is not None:
            self.asking.append(ModelUse(name, model_name(definition.extra.get("llm", {})), tool.llm))

    def _carry(self, tool_name: str, files: Mapping[str, bytes]) -> None:
        for file, content in files.items():
            if self.files.setdefault(f"files/{tool_name}/{file}", content) != content:
                raise NotPortable(f"has the script {file}, and another tool of that name has a different one")


def _requirement(package: Mapping[str, Any]) -> str:
    """A package as a workflow lists it; a plain version means exactly that one."""
    version = str(package.get("version") or "")
    return f"{package['name']}{'==' if version[:1].isdigit() else ''}{version}"
