"""Projects, protocols, steps, attempts and questions as the API and `--json` show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ratchet.kernel import RunStatus, StepStatus, iso
from ratchet.ledger.artifacts import of_attempts
from ratchet.ledger.projects import names_by_project
from ratchet.ledger.protocols import Protocol, ProtocolStep
from ratchet.ledger.sessions import SessionRow
from ratchet.ledger.sessions import of_attempts as sessions_of_attempts
from ratchet.ledger.usage import totals
from ratchet.operations import described, record

if TYPE_CHECKING:
    from ratchet.ledger import Artifact, Attempt, Event, Transaction
    from ratchet.ledger.projects import Project
    from ratchet.ledger.questions import Clarification
    from ratchet.projects.stages import OnboardingView


def when(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else iso(milliseconds)


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
        return cls(
            id=protocol.run_id,
            protocol_name=protocol.name,
            protocol_root=protocol.root,
            template_config=template,
            spec_validation_status=protocol.spec_status,
            **{name: getattr(protocol, name) for name in _SAME},
        )


_SAME = (
    "project_id",
    "number",
    "status",
    "reason",
    "description",
    "base_branch",
    "base_commit",
    "worktree_path",
    "automatic",
    "template_source",
    "spec_hash",
    "spec_validated_at",
    "pushed",
    "pull_request",
    "simulated",
    "used_recording",
    "created_at",
    "updated_at",
    "ended_at",
)


def protocol_record(protocol: Protocol, *, brief: bool = False) -> dict[str, Any]:
    return record(ProtocolAnswer.of(protocol, brief=brief))


def spec_record(protocol: Protocol) -> dict[str, Any]:
    """The spec of a protocol, and whether it holds."""
    return {
        "protocol_run_id": protocol.run_id,
        "protocol_name": protocol.name,
        "project_id": protocol.project_id,
        "spec": protocol.spec,
        "spec_hash": protocol.spec_hash,
        "validation_status": protocol.spec_status,
        "validation_errors": protocol.spec_errors or [],
        "validated_at": when(protocol.spec_validated_at),
    }


@dataclass(frozen=True, slots=True)
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
        return cls(
            id=step.step_id,
            protocol_run_id=step.run_id,
            step_name=step.name,
            depends_on=step.depends_on or [],
            **{name: getattr(step, name) for name in _OF_STEP},
        )


_OF_STEP = (
    "step_index",
    "step_type",
    "status",
    "reason",
    "retries",
    "model",
    "engine_id",
    "policy",
    "runtime_state",
    "summary",
    "commit",
    "awaits_ci",
    "created_at",
    "updated_at",
    "ended_at",
)


def step_record(step: ProtocolStep) -> dict[str, Any]:
    return record(StepAnswer.of(step))


_TRANSCRIPT = "-transcript.jsonl"
_EVENT_DATA = "event-data.json"


def attempt_records(tx: Transaction, attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """What there is of each attempt, found for all of them at once. Links are paths of the API."""
    numbers = [attempt.id for attempt in attempts]
    artifacts, sessions = of_attempts(tx, numbers), sessions_of_attempts(tx, numbers)
    used = totals(tx, "attempt", numbers)
    return [
        {
            "id": attempt.id,
            "run_id": attempt.run_id,
            "step_id": attempt.step_id,
            "number": attempt.number,
            "process_id": attempt.process_id,
            "simulated": attempt.simulated,
            "outcome": None if attempt.outcome is None else str(attempt.outcome),
            "reason": attempt.reason,
            "verdict": attempt.verdict,
            "started_at": iso(attempt.started_at),
            "ended_at": when(attempt.ended_at),
            "usage": asdict(used[attempt.id]),
            "sessions": [_session(each) for each in sessions if each.attempt_id == attempt.id],
            "links": _links(attempt, [each for each in artifacts if each.attempt_id == attempt.id]),
        }
        for attempt in attempts
    ]


def _session(session: SessionRow) -> dict[str, Any]:
    return {
        "id": session.id,
        "role": session.role,
        "engine": session.engine,
        "model": session.model,
        "failure": session.failure,
        "reason": session.reason,
        "simulated": session.simulated,
        "usage": asdict(session.usage),
        "transcript": None if session.transcript is None else _content(session.transcript),
        "at": iso(session.at),
    }


def _links(attempt: Attempt, artifacts: Sequence[Artifact]) -> dict[str, Any]:
    # A list of protocols starts without the loop and its engines.
    from ratchet.loop import CHANGE_FILE, PROMPT_FILE

    place = f"/attempts/{attempt.id}"
    newest = {artifact.name: _content(artifact.sha256) for artifact in artifacts}
    transcripts = [name for name in newest if name.endswith(_TRANSCRIPT)]
    others = {PROMPT_FILE, CHANGE_FILE, _EVENT_DATA, *transcripts}
    return {
        "self": place,
        "log": f"{place}/log",
        "log_stream": f"{place}/log/stream",
        "artifacts": f"{place}/artifacts",
        "prompt": newest.get(PROMPT_FILE),
        "diff": f"{place}/diff" if CHANGE_FILE in newest else None,
        "transcripts": {name.removesuffix(_TRANSCRIPT): newest[name] for name in transcripts},
        "reports": {name: address for name, address in newest.items() if name not in others},
    }


def _content(sha256: str) -> str:
    return f"/artifacts/{sha256}"


def project_record(tx: Transaction, project: Project) -> dict[str, Any]:
    return project_records(tx, [project])[0]


def project_records(tx: Transaction, projects: Sequence[Project]) -> list[dict[str, Any]]:
    names = names_by_project(tx, [project.id for project in projects])
    return [_record(project, names[project.id]) for project in projects]


def _record(project: Project, secret_names: list[str]) -> dict[str, Any]:
    return {
        "id": project.id,
        "name": project.name,
        "git_url": project.git_url,
        "local_path": project.local_path,
        "base_branch": project.base_branch,
        "ci_provider": project.ci_provider,
        "default_models": project.default_models,
        "facts": project.facts,
        "secret_names": secret_names,
        "archived_at": when(project.archived_at),
        "created_at": iso(project.created_at),
        "updated_at": iso(project.updated_at),
    }


def onboarding_record(found: OnboardingView) -> dict[str, Any]:
    """How an onboarding stands; its events newest first."""
    return {
        "project_id": found.project_id,
        "protocol_run_id": found.run_id,
        "status": found.status,
        "reason": found.reason,
        "workspace_path": found.workspace_path,
        "last_event": None if found.last_event is None else _event(found.last_event),
        "stages": [
            {"name": stage.name, "status": stage.status, "reason": stage.reason} for stage in found.stages
        ],
        "events": [_event(event) for event in found.events],
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "event_type": event.type,
        "message": event.message,
        "metadata": event.data,
        "created_at": iso(event.at),
    }


def clarification_record(asked: Clarification) -> dict[str, Any]:
    return {
        "id": asked.id,
        "project_id": asked.project_id,
        "protocol_run_id": asked.run_id,
        "step_run_id": asked.step_id,
        "key": asked.key,
        "question": asked.question,
        "options": asked.options,
        "recommended": asked.recommended,
        "applies_to": asked.applies_to,
        "blocking": asked.blocking,
        "status": "open" if asked.open else "answered",
        "answer": asked.answer,
        "answered_by": asked.answered_by,
        "answered_at": when(asked.answered_at),
        "created_at": iso(asked.created_at),
    }
