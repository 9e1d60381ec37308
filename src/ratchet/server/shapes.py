"""What several endpoints answer with."""

from __future__ import annotations

from ratchet.kernel import Outcome, RunStatus, StepStatus
from ratchet.server.fields import Json, Moment, Shape


class Event(Shape):
    id: int
    at: Moment
    type: str
    actor: str
    request_id: str | None
    project_id: int | None
    run_id: int | None
    step_id: int | None
    attempt_id: int | None
    job_id: int | None
    message: str | None
    data: Json


class Run(Shape):
    id: int
    kind: str
    name: str
    project_id: int | None
    status: RunStatus
    reason: str | None
    spec: Json
    result: Json
    simulated: bool
    used_recording: bool
    created_at: Moment
    updated_at: Moment
    ended_at: Moment | None


class Step(Shape):
    id: int
    run_id: int
    position: int
    name: str
    status: StepStatus
    reason: str | None
    spec: Json
    result: Json
    created_at: Moment
    updated_at: Moment
    ended_at: Moment | None


class Attempt(Shape):
    id: int
    run_id: int
    step_id: int
    number: int
    process_id: str | None
    simulated: bool
    outcome: Outcome | None
    reason: str | None
    verdict: Json
    started_at: Moment
    ended_at: Moment | None


class Artifact(Shape):
    id: int
    sha256: str
    size: int
    name: str
    media_type: str
    run_id: int | None
    attempt_id: int | None
    pinned: bool
    created_at: Moment
