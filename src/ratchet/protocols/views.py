"""Protocols, their steps, specs and attempts as the API and `--json` show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ratchet.kernel import Outcome, RunStatus, StepStatus, Usage
from ratchet.ledger import Event, Step
from ratchet.ledger.artifacts import of_attempts
from ratchet.ledger.protocols import Protocol, ProtocolStep
from ratchet.ledger.usage import SessionRow, totals
from ratchet.ledger.usage import of_attempts as sessions_of_attempts
from ratchet.operations import Listing, described, filled, record

if TYPE_CHECKING:
    from ratchet.ledger import Artifact, Attempt, Transaction


@dataclass(frozen=True, slots=True)
class ProtocolAnswer:
    """A protocol; its `id` is also that of its run. `automatic` ones run their steps by themselves."""

    id: int
    project_id: int
    protocol_name: str = field(metadata={"examples": ["0007-add-login"]})
    number: int | None
    status: RunStatus
    reason: str | None
    description: str | None
    base_branch: str
    base_commit: str | None
    worktree_path: str | None
    protocol_root: str
    automatic: bool
    template_config: Any
    template_source: Any
    spec_hash: str | None
    spec_validation_status: str | None
    spec_validated_at: int | None
    pushed: str | None = field(metadata=described("the last commit that the remote is known to have"))
    pull_request: Any
    simulated: bool
    used_recording: bool
    created_at: int
    updated_at: int
    ended_at: int | None

    @classmethod
    def of(cls, protocol: Protocol, *, brief: bool = False) -> Self:
        """A protocol; `brief`, for lists, without the spec in its template, which is long."""
        template = protocol.template_config
        if brief and isinstance(template, dict):
            template = {key: value for key, value in template.items() if key != "protocol_spec"}
        return filled(
            cls,
            protocol,
            id=protocol.run_id,
            protocol_name=protocol.name,
            protocol_root=protocol.root,
            template_config=template,
            spec_validation_status=protocol.spec_status,
        )


def protocol_record(protocol: Protocol, *, brief: bool = False) -> dict[str, Any]:
    return record(ProtocolAnswer.of(protocol, brief=brief))


@dataclass(frozen=True, slots=True)
class SpecAnswer:
    """The spec of a protocol. `validation_status` is valid, invalid or missing."""

    protocol_run_id: int
    protocol_name: str
    project_id: int
    spec: Any
    spec_hash: str | None
    validation_status: str | None
    validation_errors: list[str]
    validated_at: int | None

    @classmethod
    def of(cls, of: Protocol) -> Self:
        return cls(
            of.run_id,
            of.name,
            of.project_id,
            of.spec,
            of.spec_hash,
            of.spec_status,
            of.spec_errors or [],
            of.spec_validated_at,
        )


@dataclass(frozen=True)
class StepAnswer:
    id: int
    protocol_run_id: int
    step_index: int
    step_name: str = field(metadata={"examples": ["01-build"]})
    step_type: str
    status: StepStatus
    reason: str | None
    retries: int
    model: str | None
    engine_id: str | None
    policy: Any
    runtime_state: Any
    summary: str | None
    depends_on: list[str]
    commit: str | None = field(metadata=described("its newest commit on the branch"))
    awaits_ci: bool
    created_at: int
    updated_at: int
    ended_at: int | None

    @classmethod
    def of(cls, step: ProtocolStep) -> Self:
        return filled(
            cls,
            step,
            id=step.step_id,
            protocol_run_id=step.run_id,
            step_name=step.name,
            depends_on=step.depends_on or [],
        )


def step_record(step: ProtocolStep) -> dict[str, Any]:
    return record(StepAnswer.of(step))


_TRANSCRIPT = "-transcript.jsonl"
_EVENT_DATA = "event-data.json"


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """One use of an engine, by the author or a reviewer."""

    id: int
    role: str
    engine: str
    model: str | None
    failure: str | None
    reason: str | None
    simulated: bool
    usage: Usage
    transcript: str | None
    at: int


@dataclass(frozen=True, slots=True)
class AttemptLinks:
    """Where the evidence is, as paths of the API; empty where there is none yet."""

    self: str
    log: str
    log_stream: str
    artifacts: str
    prompt: str | None
    diff: str | None
    transcripts: dict[str, str] = field(metadata=described("by the role of who spoke"))
    reports: dict[str, str] = field(metadata=described("of the judges, by name"))


@dataclass(frozen=True, slots=True)
class AttemptAnswer:
    id: int
    run_id: int
    step_id: int
    number: int
    process_id: str | None
    simulated: bool
    outcome: Outcome | None
    reason: str | None
    verdict: Any
    started_at: int
    ended_at: int | None
    usage: Usage
    sessions: list[SessionAnswer]
    links: AttemptLinks


def attempt_answers(tx: Transaction, attempts: Sequence[Attempt]) -> list[AttemptAnswer]:
    """What there is of each attempt, found for all of them at once."""
    numbers = [attempt.id for attempt in attempts]
    artifacts, sessions = of_attempts(tx, numbers), sessions_of_attempts(tx, numbers)
    used = totals(tx, "attempt", numbers)
    return [
        filled(
            AttemptAnswer,
            attempt,
            usage=used[attempt.id],
            sessions=[_session(each) for each in sessions if each.attempt_id == attempt.id],
            links=_links(attempt, [each for each in artifacts if each.attempt_id == attempt.id]),
        )
        for attempt in attempts
    ]


@dataclass(frozen=True)
class StepWithAttempts(Step):
    attempts: Listing[AttemptAnswer]


@dataclass(frozen=True)
class ProtocolStepWithAttempts(StepWithAttempts, StepAnswer):
    """A step of a protocol, with its own fields beside those that every step has."""


@dataclass(frozen=True, kw_only=True)
class ProtocolEvent(Event):
    """An event, also under the names that the protocol's other answers use."""

    protocol_run_id: int | None
    step_run_id: int | None
    event_type: str
    metadata: Any
    created_at: int

    @classmethod
    def of(cls, event: Event) -> Self:
        return filled(
            cls,
            event,
            protocol_run_id=event.run_id,
            step_run_id=event.step_id,
            event_type=event.type,
            metadata=event.data,
            created_at=event.at,
        )


def _session(session: SessionRow) -> SessionAnswer:
    transcript = None if session.transcript is None else _content(session.transcript)
    return filled(SessionAnswer, session, transcript=transcript)


def _links(attempt: Attempt, artifacts: Sequence[Artifact]) -> AttemptLinks:
    # A list of protocols starts without the loop and its engines.
    from ratchet.loop import CHANGE_FILE, PROMPT_FILE

    place = f"/attempts/{attempt.id}"
    newest = {artifact.name: _content(artifact.sha256) for artifact in artifacts}
    transcripts = [name for name in newest if name.endswith(_TRANSCRIPT)]
    others = {PROMPT_FILE, CHANGE_FILE, _EVENT_DATA, *transcripts}
    return AttemptLinks(
        self=place,
        log=f"{place}/log",
        log_stream=f"{place}/log/stream",
        artifacts=f"{place}/artifacts",
        prompt=newest.get(PROMPT_FILE),
        diff=f"{place}/diff" if CHANGE_FILE in newest else None,
        transcripts={name.removesuffix(_TRANSCRIPT): newest[name] for name in transcripts},
        reports={name: address for name, address in newest.items() if name not in others},
    )


def _content(sha256: str) -> str:
    return f"/artifacts/{sha256}"
