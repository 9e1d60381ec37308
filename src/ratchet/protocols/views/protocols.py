"""Protocols as they are shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from ratchet.kernel import RunStatus
from ratchet.ledger.protocols import Protocol
from ratchet.operations import described, record
from ratchet.protocols.views.times import when


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
