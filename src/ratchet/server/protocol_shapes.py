"""What the endpoints of projects and protocols answer with: the keys that the command line prints with `--json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, model_validator

from ratchet.kernel import Outcome
from ratchet.protocols.views import ProtocolAnswer, StepAnswer
from ratchet.runtime.operations.jobs import AcceptedAnswer
from ratchet.server import shapes
from ratchet.server.fields import Foreign, Json, Moment, Page, Shape
from ratchet.server.operation import shape_of
from ratchet.server.research_shapes import Instant

if TYPE_CHECKING:
    Accepted = AcceptedAnswer
    Protocol = ProtocolAnswer
    Step = Shape
else:
    Accepted, Protocol, Step = map(shape_of, (AcceptedAnswer, ProtocolAnswer, StepAnswer))


class Project(Shape):
    id: int
    name: str = Field(examples=["shop"])
    git_url: str | None = Field(examples=["https://github.com/example/shop.git"])
    local_path: str | None = Field(description="where it is on the machine that set it up")
    base_branch: str = Field(examples=["main"])
    ci_provider: str | None = Field(examples=["github"])
    default_models: Json
    facts: Json = Field(description="what was found out about the repository, and what people settled")
    secret_names: list[str] = Field(description="which secrets it has; they are never shown")
    archived_at: Instant | None
    created_at: Instant
    updated_at: Instant


class Secrets(BaseModel):
    secret_names: list[str] = Field(examples=[["api_token", "webhook_secret"]])


class SetupEnvironment(BaseModel):
    directory: str
    python: str | None
    seconds: float = Field(description="how long making it took")
    commands: list[str]
    directories: list[str] = Field(description="what the set-up made in the checkout, such as node_modules")
    notes: list[str] = Field(description="what failed and was done without")


class ProjectCheck(BaseModel):
    name: str = Field(examples=["pytest"])
    command: str = Field(examples=["python3 -m pytest"])
    kind: str = Field(examples=["test"])


class Setup(BaseModel):
    """How a project is set up and checked."""

    stack: list[str]
    commands: list[str]
    settled: bool = Field(description="whether a person has settled the commands")
    needs: list[str] = Field(description="distributions that checks run")
    runs: list[str] = Field(description="what making the environment runs")
    state: str = Field(description="not needed, not made yet, made or unknown")
    problem: str | None
    environment: SetupEnvironment | None
    checks: list[ProjectCheck]
    checks_settled: bool
    notes: list[str]


class Branches(BaseModel):
    branches: list[str] = Field(examples=[["main", "0007-add-login"]])


class DeletedBranch(BaseModel):
    deleted: Literal[True] = True
    branch: str


class Stage(Shape):
    name: str
    status: str
    reason: Foreign | None


class SetupEvent(Shape):
    id: int
    event_type: str
    message: Foreign | None
    metadata: Json
    created_at: Instant


class Onboarding(Shape):
    """`status` is that of its run; a stage is pending, running, skipped, warning, blocked, completed or failed."""

    project_id: int
    protocol_run_id: int | None
    status: str
    reason: Foreign | None
    workspace_path: str | None
    last_event: SetupEvent | None
    stages: list[Stage]
    events: list[SetupEvent] = Field(description="newest first")


class Clarification(Shape):
    """A question to people. While it is `blocking` and open, what it `applies_to` waits."""

    id: int
    project_id: int
    protocol_run_id: int | None
    step_run_id: int | None
    key: str
    question: Foreign
    options: Json
    recommended: Json
    applies_to: str
    blocking: bool
    status: Literal["open", "answered"]
    answer: Json
    answered_by: str | None
    answered_at: Instant | None
    created_at: Instant


class Imported(BaseModel):
    """`protocol_run` is empty while the import is in line; the result of `job` names it then."""

    message: str
    protocol_run: Protocol | None
    job: shapes.Job | None


class Spec(Shape):
    """`validation_status` is valid, invalid or missing."""

    protocol_run_id: int
    protocol_name: str
    project_id: int
    spec: Json
    spec_hash: str | None
    validation_status: str | None
    validation_errors: list[Foreign]
    validated_at: Instant | None


class CheckedSpec(BaseModel):
    valid: bool
    problems: list[Foreign] = Field(description="a sentence for each thing that is wrong")


class CheckResult(Shape):
    """The newest word of one check; `job`, `step` and `log_tail` say where it failed, as far as the forge told."""

    check: Foreign
    url: Foreign | None
    job: Json
    step: Json
    log_tail: Json
    outcome: Json
    state: str
    provider: str
    at: Moment


class CommitChecks(Shape):
    commit: str
    steps: list[str]
    state: str
    waiting: list[Foreign] = Field(description="required checks that have not said their last word")
    checks: list[CheckResult]


class Ci(Shape):
    protocol_run_id: int
    pushed: str | None
    pull_request: Json
    required_checks: list[Foreign]
    commits: list[CommitChecks]


class ProtocolEvent(shapes.Event):
    """An event, also under the names that the protocol's other answers use."""

    protocol_run_id: int | None
    step_run_id: int | None
    event_type: str
    metadata: Json
    created_at: Moment

    @model_validator(mode="before")
    @classmethod
    def _named(cls, event: Any) -> Any:
        if isinstance(event, dict):
            return event
        plain = {name: getattr(event, name) for name in shapes.Event.model_fields}
        return {
            **plain,
            "protocol_run_id": event.run_id,
            "step_run_id": event.step_id,
            "event_type": event.type,
            "metadata": event.data,
            "created_at": event.at,
        }


class Used(Shape):
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_microusd: int
    wall_ms: int
    trials: int
    unpriced_tokens: int = 0


class Session(Shape):
    """One use of an engine, by the author or a reviewer."""

    id: int
    role: str
    engine: str
    model: str | None
    failure: str | None
    reason: Foreign | None
    simulated: bool
    usage: Used
    transcript: str | None
    at: Instant


class Links(Shape):
    """Where the evidence is, as paths of this API; empty where there is none yet."""

    self: str
    log: str
    log_stream: str
    artifacts: str
    prompt: str | None
    diff: str | None
    transcripts: dict[str, str] = Field(description="by the role of who spoke")
    reports: dict[str, str] = Field(description="of the judges, by name")


class Attempt(Shape):
    id: int
    run_id: int
    step_id: int
    number: int
    process_id: str | None
    simulated: bool
    outcome: Outcome | None
    reason: Foreign | None
    verdict: Json
    started_at: Instant
    ended_at: Instant | None
    usage: Used
    sessions: list[Session]
    links: Links


class StepWithAttempts(shapes.Step):
    attempts: Page[Attempt]


class ProtocolStepWithAttempts(StepWithAttempts, Step):
    """A step of a protocol, with its own fields beside those that every step has."""


class LogPart(Shape):
    chunk: str = Field(description="whole lines", examples=["2026-07-31T20:11:44.123Z message Done.\n"])
    next_offset: int = Field(description="pass it as `offset` for the next part")
    ended: bool = Field(description="whether the attempt has ended and this was the last of it")


class LogLine(BaseModel):
    """`offset` goes on behind this line."""

    offset: int
    text: str
