"""What a tool does when it is called: one body for each type that can be called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
