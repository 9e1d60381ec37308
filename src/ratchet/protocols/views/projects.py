"""Projects as they are shown: which secrets they have, never what those are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ratchet.kernel import iso
from ratchet.ledger.projects import names_by_project
from ratchet.protocols.views.times import when

if TYPE_CHECKING:
    from ratchet.ledger import Event, Transaction
    from ratchet.ledger.projects import Project
    from ratchet.projects.onboarding_view import Onboarding


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


def onboarding_record(found: Onboarding) -> dict[str, Any]:
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
