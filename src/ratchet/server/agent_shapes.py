"""What the endpoints of agents answer with: the same keys that the command line prints with `--json`."""

from __future__ import annotations

from pydantic import BaseModel, Field

from ratchet.agents.contract import Role
from ratchet.kernel import RunStatus
from ratchet.ledger.agents import AgentStatus, VersionStatus
from ratchet.server.fields import Foreign, Json, Shape
from ratchet.server.research_shapes import Instant


class Agent(Shape):
    """`version` and `commit` are those of the version that its address leads to; `pinned` holds it there."""

    name: str
    description: str
    status: AgentStatus
    reason: str | None
    version: str | None
    commit: str | None
    pinned: bool
    engine: str | None
    model: str | None
    simulated: bool
    created_at: Instant
    updated_at: Instant


class AgentPage(BaseModel):
    items: list[Agent]
    next: str | None = Field(description="pass it as `after` for the next page; null at the end")


class Version(Shape):
    """`tools` are the names of its Runner's tools."""

    id: int
    version: str = Field(description="the number in its metadata.json, which variants may share")
    commit: str
    parent: str | None = Field(description="the commit that it was made from")
    is_current: bool
    status: VersionStatus
    reason: str | None
    summary: str
    tools: list[str]
    run: int | None
    simulated: bool
    created_at: Instant
    promoted_at: Instant | None


class ListedVersion(Version):
    """`on_line` says that it is the current version or one that led to it; others are variants, or were rolled back."""

    on_line: bool
    tag: str | None


class Tool(Shape):
    name: Foreign
    description: Foreign
    input_schema: Json
    output_schema: Json


class WholeVersion(Shape):
    """A version with its tools, as its Runner lists them."""

    id: int
    version: str
    commit: str
    parent: str | None
    is_current: bool
    on_line: bool
    tag: str | None
    status: VersionStatus
    reason: str | None
    summary: str
    tools: list[Tool]
    run: int | None
    simulated: bool
    directory: str
    created_at: Instant
    promoted_at: Instant | None


class Address(Shape):
    """Where its servers answer, whatever the version; `is_up` says whether anybody answers there now."""

    runner: str | None
    tuner: str | None
    is_up: bool


class AgentRun(Shape):
    """A creation or a feedback. `result` says what was decided, once it is completed."""

    run: int
    action: str | None
    status: RunStatus
    reason: str | None
    message: str | None
    severity: str | None
    source: str | None
    result: Json
    simulated: bool
    used_recording: bool
    created_at: Instant
    ended_at: Instant | None


class WholeAgent(Agent):
    current: Version | None
    address: Address
    directory: str
    runs: list[AgentRun] = Field(description="the last ones, newest first")


class RunningVersion(Shape):
    """A version whose servers this process has started, or tries to."""

    commit: str
    state: str
    calls: int = Field(description="calls in flight")
    sessions: int = Field(description="sessions that clients have open")
    servers: dict[str, Json] = Field(description="each with its state, port, restarts and crashes")


class ServedAgent(WholeAgent):
    serving: list[RunningVersion] | None = Field(description="null where another process serves agents")


class ToolChanges(Shape):
    """Names of tools. `least` is the smallest step of the version's number that is honest about them."""

    added: list[str]
    removed: list[str]
    changed: list[str] = Field(description="what was a right call before is none now")
    widened: list[str] = Field(description="they take or answer more than before")
    least: str


class Comparison(Shape):
    agent: str
    old: Version
    new: Version
    tools: ToolChanges
    files: list[str]
    diff: str
    is_cut: bool = Field(description="whether the patch or the list of files is longer than what is sent")


class Answer(Shape):
    """What a tool answered: `content` as MCP has it, `text` what of it a person can read."""

    agent: str
    tool: str
    failed: bool
    text: Foreign
    content: list[Json]
    structured: Json


class LogLines(Shape):
    agent: str
    commit: str
    server: Role
    printed: bool
    lines: list[str]
    is_cut: bool = Field(description="whether there is more before these lines")


class Change(Shape):
    """A change of the state. `recovered` says that nobody told of it when it happened."""

    number: int
    at: Instant
    by: str | None
    restored: int | None = Field(description="the change whose state came back")
    recovered: bool
