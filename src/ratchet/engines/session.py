"""What an engine is asked, what it says while it works, and what it leaves."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ratchet.kernel import Limits, Usage


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, so that a flow can refuse one that does not fit before it costs anything.

    One that takes `own_tools` can be given functions of this process in `Request.tools`, and one that `learns_scores`
    says in its session's data what it proposed, and wants to be told the score of it.
    """

    edits_files: bool = False
    structured_output: bool = False
    mcp_tools: bool = False
    resumable: bool = False
    reports_usage: bool = False
    own_tools: bool = False
    learns_scores: bool = False


@dataclass(frozen=True, slots=True)
class McpServer:
    """Tools for one session: a server that listens at `url`, or a program to start that speaks over its pipes."""

    name: str
    url: str | None = None
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.argv):
            raise ValueError(f"the MCP server {self.name} needs either a url or an argv")

    def named_files(self) -> tuple[Path, ...]:
        """What its command line names, which must be seen from inside a sandbox for it to start."""
        words = (Path(word) for word in self.argv)
        return tuple(
            path for path in words if path.is_absolute() and ".." not in path.parts and path.exists()
        )


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that runs in this process, not in the sandbox of the session.

    `run` is given what the model wrote, which fits `input_schema`, and returns what the model is told. Whatever it
    raises is told to the model as an error of the tool.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    run: Callable[[Mapping[str, Any]], Awaitable[str]]


Guard = Callable[[str, Mapping[str, Any]], Awaitable[str | None]]
"""Asked with a tool's name and input before it is used. A text forbids it and is told to the model; `None` allows."""


class EventKind(StrEnum):
    """What a session may say while it runs."""

    STARTED = "started"
    MESSAGE = "message"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    FILE_CHANGE = "file_change"
    RETRY = "retry"
    USAGE = "usage"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class SessionEvent:
    kind: EventKind
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def unheard(event: SessionEvent) -> None:
    """A listener that listens to nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """One use of an engine. Everything but `listen` decides what comes back.

    `environment` is for what the session runs, and `readable` are places that it must see besides its workspace, such
    as the repository behind it; `places` shows some of that by another path. What is `hidden` it must
    not see although it sees the machine, such as a judge's data.
    What lies below an `incidental` path of the workspace, such as logs, is no part of the question: a recording answers
    without it. `temperature` and `output_tokens`, the most of one answer, are for plain models; agents have their own.
    """

    prompt: str
    workspace: Path | None = None
    system: str | None = None
    model: str | None = None
    output_schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    output_tokens: int | None = None
    mcp_servers: tuple[McpServer, ...] = ()
    tools: tuple[Tool, ...] = ()
    guard: Guard | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    places: Mapping[Path, Path] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    incidental: tuple[str, ...] = ()
    resume: str | None = None
    deadline_seconds: float = 1800.0
    limits: Limits = field(default_factory=Limits)
    data: Mapping[str, Any] = field(default_factory=dict)
    listen: Callable[[SessionEvent], None] = field(default=unheard, compare=False)


@dataclass(frozen=True, slots=True)
class Session:
    """What one use of an engine came to.

    `text` is the last thing it said, `output` what it answered to an `output_schema`, already validated against it.
    `transcript` is everything that was said, one JSON document per line, without secrets. `resume` goes on with it.
    `ended_at` is in milliseconds since 1970; that of a recording is the one that was recorded, so that whoever writes
    it down writes the same again.
    """

    engine: str
    model: str | None = None
    text: str = ""
    output: Any = None
    usage: Usage = field(default_factory=Usage)
    resume: str | None = None
    transcript: bytes = b""
    simulated: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)
    ended_at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
