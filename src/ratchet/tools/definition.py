"""What a tool is."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ratchet.kernel.semver import Bump
from ratchet.tools.bodies import (
    Body,
    ExecutableBody,
    FunctionBody,
    LlmBody,
    McpBody,
    OpenApiBody,
    PythonBody,
    WorkflowBody,
)


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
    network: bool = False
    cache: bool = True
    timeout: float | None = None
    """Seconds; without one the caller's limit holds."""
    fallback_tool: str | None = None
    requirements: tuple[str, ...] = ()

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
        from ratchet.tools.writing import write_tool

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
    from ratchet.tools.reading import read

    return read(data, folder=folder, id=id, file=file, stored=stored)
