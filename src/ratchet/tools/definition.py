"""What a tool is, also one that travels inside a workflow."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.kernel import PlacementChoice
from ratchet.kernel.semver import Bump

if TYPE_CHECKING:
    from ratchet.flowkit.spec import ToolDefinition

_SCHEME = "workflow:"
_APART = frozenset(
    {"extra", "folder", "files", "warnings", "examples", "network", "cache", "constraints", "placement"}
)
_BODIES = ("llm", "python", "executable", "openapi", "mcp", "workflow", "function")


def folder_of(workflow_id: str) -> str:
    """Where the ledger keeps the tools of a workflow: two workflows may bring tools of the same name."""
    return f"{_SCHEME}{workflow_id}"


def full_name(tool_id: str, folder: str) -> str:
    """`WORKFLOW/TOOL` for a tool of a workflow's folder, and its id for any other."""
    workflow = folder.removeprefix(_SCHEME)
    return tool_id if workflow == folder else f"{workflow}/{tool_id}"


def read_name(name: str) -> tuple[str, str]:
    """The id of a tool, and the folder of the workflow that brings it; nothing if the name is not `WORKFLOW/TOOL`."""
    workflow, slash, tool_id = name.rpartition("/")
    return tool_id, folder_of(workflow) if slash else ""


@dataclass(frozen=True)
class LlmBody:
    """A question for a model. `prompt_template` has `{input}` in the places of inputs.

    Of `model`, `role` and `tier` the first that is given chooses the model; `tier` may be `role.level`.
    """

    model: str | None = None
    role: str | None = None
    tier: str | None = None
    system_prompt: str | None = None
    prompt_template: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PythonBody:
    """Python code. It defines the function `entry`, called with the inputs by name, or is a script that reads one JSON
    document from stdin and prints one."""

    source: str
    entry: str = "run"
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecutableBody:
    """A program. `args` may hold `{tool_dir}` and the names of inputs in braces; the inputs are on stdin as JSON.

    `files` are the scripts in the tool's folder that the arguments name, each with the SHA-256 of its content.
    """

    command: str
    args: tuple[str, ...] = ()
    install_command: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenApiBody:
    """A web service. `spec` is its description if that is in a file; else it is at `spec_url`, or there is only a
    `base_url`. `auth` names variables of the environment, never secrets."""

    spec: Mapping[str, Any] | None = None
    spec_url: str | None = None
    base_url: str | None = None
    operation: str | None = None
    auth: Mapping[str, Any] = field(default_factory=dict)
    code_template: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class McpBody:
    """A tool of an MCP server. The server is one of the settings, unless the definition says how to start it.

    Without `tool` it stands for the server as a whole, and a call names one of its tools.
    """

    server: str
    tool: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    capabilities: tuple[Any, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkflowBody:
    """A whole workflow as one step. `spec` is its JSON."""

    spec: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FunctionBody:
    """A trusted Python function of this process, by the name under which its package announces it (`ratchet.tools`)."""

    entry: str
    extra: Mapping[str, Any] = field(default_factory=dict)


Body = LlmBody | PythonBody | ExecutableBody | OpenApiBody | McpBody | WorkflowBody | FunctionBody


class ToolType(StrEnum):
    """The first seven can be called, if they have a body. The others are labels of old files: listed, never called."""

    LLM = "llm"
    PYTHON = "python"
    EXECUTABLE = "executable"
    OPENAPI = "openapi"
    MCP = "mcp"
    WORKFLOW = "workflow"
    FUNCTION = "function"

    CUSTOM = "custom"
    COMMUNITY = "community"
    PROMPT_TEMPLATE = "prompt_template"
    DATA_PROCESSOR = "data_processor"
    VALIDATOR = "validator"
    DATABASE = "database"
    FILE_SYSTEM = "file_system"
    VECTOR_STORE = "vector_store"
    API_CONNECTOR = "api_connector"
    CACHE = "cache"
    MESSAGE_QUEUE = "message_queue"
    FINE_TUNED_LLM = "fine_tuned_llm"
    TRAINING_PIPELINE = "training_pipeline"
    OPTIMIZER = "optimizer"
    STREAM = "stream"


CALLABLE = frozenset(list(ToolType)[:7])


@dataclass(frozen=True)
class Constraints:
    """Bounds of a tool's use. What is `None` is bounded by the settings alone."""

    max_calls_per_hour: int | None = None
    max_memory_mb: int | None = None
    max_output_bytes: int | None = None
    max_db_size_mb: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """Inputs and, if `checked`, the output that they must give."""

    input: Mapping[str, Any]
    output: Any = None
    checked: bool = False
    description: str = ""


@dataclass(frozen=True)
class Tool:
    """A definition, read and checked. `read_tool` makes one; `data` writes it.

    The schemas are JSON Schema whatever the file had. Exactly one of the bodies is there, and none for a label.
    """

    id: str
    type: ToolType
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    cost_tier: str | None = None
    speed_tier: str | None = None
    quality_tier: str | None = None
    max_output_length: str | None = None
    priority: float = 0.0
    version: str | None = None
    change_type: Bump | None = None
    breaking_changes: tuple[str, ...] = ()
    track_usage: bool = True
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    examples: tuple[Example, ...] = ()
    constraints: Constraints = field(default_factory=Constraints)
    placement: PlacementChoice = field(default_factory=PlacementChoice)
    """Of a Python tool or a program: where it runs."""
    network: bool = False
    cache: bool = True
    timeout: float | None = None
    """Seconds; without one the caller's limit holds."""
    fallback_tool: str | None = None
    requirements: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Names of variables that a Python tool or a program is given in its environment."""

    llm: LlmBody | None = None
    python: PythonBody | None = None
    executable: ExecutableBody | None = None
    openapi: OpenApiBody | None = None
    mcp: McpBody | None = None
    workflow: WorkflowBody | None = None
    function: FunctionBody | None = None

    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the file that have no use here, kept so that nothing is lost."""
    folder: Path | None = field(default=None, compare=False)
    """Where `{tool_dir}` leads to. No part of the definition: the same tool may lie anywhere."""
    files: tuple[str, ...] = field(default=(), compare=False)
    """Files of the folder that were read for it."""
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def body(self) -> Body | None:
        found: Body | None = getattr(self, self.type, None) if self.type in CALLABLE else None
        return found

    @property
    def refusal(self) -> str | None:
        """Why this tool cannot be called, if it cannot."""
        if self.type not in CALLABLE:
            return (
                f"tool {self.id} is of type {self.type}, which is only a label: nothing says how to call it"
            )
        if self.body is None:
            return f"tool {self.id} is of type {self.type}, but its definition does not say what to call"
        return None

    @functools.cached_property
    def data(self) -> dict[str, Any]:
        """The definition as JSON, without what is as it would be anyway. `read_tool` makes the same tool of it."""

        return write_tool(self)

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 of the definition, however its keys are ordered."""
        text = json.dumps(self.data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def with_body(self, body: Body) -> Tool:
        """The same tool with another body of the same type."""
        return dataclasses.replace(self, **{self.type.value: body})  # type: ignore[arg-type]


def read_tool(
    data: Mapping[str, Any],
    *,
    folder: Path | None,
    id: str | None = None,
    file: str | None = None,
    stored: bool = False,
) -> Tool:
    """The tool that a definition describes. Raises `ToolError` with everything that is wrong with it.

    `folder` is where the files that it names lie; what they say becomes part of the tool. `id` is the one it has if the
    definition names none, and `file` is what errors call it. One that is `stored` is the `data` of a tool: its schemas
    are not checked again, which takes longer than everything else.
    """
    from ratchet.tools.reader import read

    return read(data, folder=folder, id=id, file=file, stored=stored)


def write_tool(tool: Tool) -> dict[str, Any]:
    """The definition of `tool`. `read_tool` makes an equal one of it, without its folder."""
    data: dict[str, Any] = {"id": tool.id, "type": tool.type.value, "name": tool.name}
    for each in dataclasses.fields(tool):
        if each.name not in _APART and each.name not in _BODIES:
            value = getattr(tool, each.name)
            if each.name not in data and value != each.default:
                data[each.name] = _plain(value)
    outside = tool.type in ("openapi", "mcp")
    if tool.network != outside:
        data["network"] = tool.network
    if tool.cache != usual_cache(tool.network, tool.llm):
        data["cache"] = tool.cache
    if tool.examples:
        data["examples"] = [_written_example(each) for each in tool.examples]
    if constraints := _set_fields(tool.constraints):
        data["constraints"] = constraints
    if placement := tool.placement.data:
        data["placement"] = placement
    if tool.body is not None:
        data[tool.type.value] = _set_fields(tool.body)
        _settle(data, tool)
    return {**tool.extra, **data}


def usual_cache(network: bool, llm: LlmBody | None) -> bool:
    """Whether the same inputs give the same answer, so that it need not be made again."""
    return not network and (llm is None or llm.temperature == 0)


def _settle(data: dict[str, Any], tool: Tool) -> None:
    """Two keys of bodies stand beside the body in a file, and a command without arguments says that it has none."""
    body = data[tool.type.value]
    if isinstance(tool.body, ExecutableBody):
        body.setdefault("args", [])
    if isinstance(tool.body, OpenApiBody) and "code_template" in body:
        data["code_template"] = body.pop("code_template")
    if isinstance(tool.body, McpBody) and "capabilities" in body:
        data["capabilities"] = body.pop("capabilities")


def _set_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not as they would be anyway, beside what else the file had."""
    found: dict[str, Any] = dict(value.extra)
    for each in dataclasses.fields(value):
        given = getattr(value, each.name)
        usual = each.default_factory() if callable(each.default_factory) else each.default
        if each.name != "extra" and given != usual:
            found[each.name] = _plain(given)
    return found


def _written_example(example: Example) -> dict[str, Any]:
    data: dict[str, Any] = {"input": dict(example.input)}
    if example.checked:
        data["output"] = example.output
    if example.description:
        data["description"] = example.description
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, Bump):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def tool_from_definition(definition: ToolDefinition) -> Tool:
    """The tool that a portable workflow carries. Raises `ToolError`.

    Its other keys count as in a definition of its own: schemas, examples, constraints and the body.
    """
    data: dict[str, Any] = {
        **definition.extra,
        "type": definition.tool_type,
        "name": definition.name or definition.tool_id,
        "description": definition.description,
        "timeout": definition.timeout,
        "fallback_tool": definition.fallback_tool,
        "requirements": list(definition.requirements),
    }
    for key, body in _body(definition).items():
        given = data.get(key)
        data[key] = {**(given if isinstance(given, dict) else {}), **body}
    where = f"tool {definition.tool_id} of the workflow"
    return read_tool(data, folder=None, id=definition.tool_id, file=where)


def _body(definition: ToolDefinition) -> dict[str, dict[str, Any]]:
    """The body as a definition has it, by its key; an `executable` has its own table."""
    match definition.tool_type:
        case "llm":
            body: dict[str, Any] = {
                "model": definition.model,
                "system_prompt": definition.system_prompt,
                "temperature": definition.temperature,
                "endpoint": definition.endpoint,
            }
            return {"llm": {key: value for key, value in body.items() if value is not None}}
        case "python":
            return {"python": {} if definition.source_code is None else {"source": definition.source_code}}
        case "api" | "openapi":
            spec = definition.api_spec or {}
            # Either the whole description of a service, or only the keys of a definition.
            body = {"spec": dict(spec)} if "paths" in spec else dict(spec)
            return {"openapi": {**body, **({"base_url": definition.endpoint} if definition.endpoint else {})}}
    return {}
