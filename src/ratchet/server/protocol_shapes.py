"""What the endpoints of projects and protocols answer with: the keys that the command line prints with `--json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, model_validator

from ratchet.protocols.views import AttemptAnswer, StepAnswer
from ratchet.runtime.operations.jobs import AcceptedAnswer
from ratchet.server import shapes
from ratchet.server.fields import Foreign, Json, Moment, Page, Shape
from ratchet.server.operation import shape_of

if TYPE_CHECKING:
    Accepted = AcceptedAnswer
    Attempt = Shape
    Step = Shape
else:
    Accepted, Attempt, Step = map(shape_of, (AcceptedAnswer, AttemptAnswer, StepAnswer))


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


class StepWithAttempts(shapes.Step):
    attempts: Page[Attempt]


class ProtocolStepWithAttempts(StepWithAttempts, Step):
    """A step of a protocol, with its own fields beside those that every step has."""


class AttemptLogPart(Shape):
    chunk: str = Field(description="whole lines", examples=["2026-07-31T20:11:44.123Z message Done.\n"])
    next_offset: int = Field(description="pass it as `offset` for the next part")
    ended: bool = Field(description="whether the attempt has ended and this was the last of it")


class LogLine(BaseModel):
    """`offset` continues behind this line."""

    offset: int
    text: str
