"""Protocols as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.kernel import iso
from ratchet.protocols.spec import root_of
from ratchet.protocols.views.times import when

if TYPE_CHECKING:
    from ratchet.ledger.protocols import Protocol


def protocol_record(protocol: Protocol, *, brief: bool = False) -> dict[str, Any]:
    """A protocol; `brief`, for lists, without the spec in its template, which is long."""
    template = protocol.template_config
    if brief and isinstance(template, dict):
        template = {key: value for key, value in template.items() if key != "protocol_spec"}
    return {
        "id": protocol.run_id,
        "project_id": protocol.project_id,
        "protocol_name": protocol.name,
        "number": protocol.number,
        "status": str(protocol.status),
        "reason": protocol.reason,
        "description": protocol.description,
        "base_branch": protocol.base_branch,
        "base_commit": protocol.base_commit,
        "worktree_path": protocol.worktree_path,
        "protocol_root": root_of(protocol),
        "automatic": protocol.automatic,
        "template_config": template,
        "template_source": protocol.template_source,
        "spec_hash": protocol.spec_hash,
        "spec_validation_status": protocol.spec_status,
        "spec_validated_at": when(protocol.spec_validated_at),
        "pushed": protocol.pushed,
        "pull_request": protocol.pull_request,
        "simulated": protocol.simulated,
        "used_recording": protocol.used_recording,
        "created_at": iso(protocol.created_at),
        "updated_at": iso(protocol.updated_at),
        "ended_at": when(protocol.ended_at),
    }


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
