"""Registering a project: its row, its secrets and the job that sets it up, all in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.kernel import Conflict, Misuse, ProjectId, RunId
from ratchet.ledger import Transaction
from ratchet.ledger.projects import (
    DEFAULT_BRANCH,
    Project,
    add_facts,
    add_project,
    change_project,
    get_project,
)
from ratchet.ledger.runs import get_run
from ratchet.projects.address import read_address
from ratchet.projects.answers import check_models
from ratchet.projects.branch_names import check_branch
from ratchet.projects.jobs import SETUP
from ratchet.projects.remote import remote_key
from ratchet.projects.secrets import put_secrets
from ratchet.runtime import Runtime, resume_run, start_run

PROVIDERS = ("github", "gitlab")
_LONGEST_NAME = 200


def register_project(
    tx: Transaction,
    runtime: Runtime,
    *,
    name: str,
    git_url: str | None = None,
    local_path: str | None = None,
    base_branch: str = DEFAULT_BRANCH,
    ci_provider: str | None = None,
    default_models: Mapping[str, str] | None = None,
    secrets: Mapping[str, str | None] | None = None,
    ci_files: bool = False,
) -> ProjectId:
    """A new project, and its onboarding in line. One with a `local_path` is worked on where it is.

    Only with `ci_files` are scripts and a CI file written where the repository lacks them.

    Raises `Misuse` for what cannot be meant, and `Conflict` when the name is taken.
    """
    if git_url is None and local_path is None:
        raise Misuse(f"project {name[:80]!r} has neither a git_url nor a local_path", hint="give one of them")
    columns = checked_columns(
        {
            "name": name,
            "base_branch": base_branch,
            "ci_provider": ci_provider,
            "default_models": default_models or {},
            **({} if git_url is None else {"git_url": git_url}),
        }
    )
    if local_path is not None:
        columns["local_path"] = _path(local_path)
    project_id = add_project(tx, **columns)
    put_secrets(tx, runtime, project_id, secrets or {})
    if ci_files:
        add_facts(tx, project_id, {"ci_files": True})
    _start(tx, runtime, project_id)
    return project_id


def update_project(tx: Transaction, runtime: Runtime, project_id: int, changes: Mapping[str, Any]) -> None:
    """Change the name, address, base branch, CI provider, models or secrets of a project. Raises as registering does.

    `archived` puts it away, or takes it out again.
    """
    changed = dict(changes)
    secrets = changed.pop("secrets", None)
    archived = changed.pop("archived", None)
    columns = checked_columns(changed)
    if archived is not None:
        columns["archived_at"] = tx.now if archived else None
    change_project(tx, project_id, **columns)
    put_secrets(tx, runtime, project_id, secrets or {})
    if columns:
        tx.event("project.changed", project_id=project_id, message=", ".join(sorted(columns)))


def set_up_again(tx: Transaction, runtime: Runtime, project_id: int, *, ci_files: bool = False) -> RunId:
    """Go on with an onboarding that is blocked or paused, or begin anew after one that has ended. The run of it.

    With `ci_files` it also writes the CI files that are missing. Raises `Conflict` while it runs.
    """
    project = get_project(tx, project_id)
    check_set_up_again(tx, project)
    if ci_files:
        add_facts(tx, project_id, {"ci_files": True})
    if project.setup_run_id is None or get_run(tx, project.setup_run_id).status.final:
        return _start(tx, runtime, project_id)
    resume_run(tx, runtime, project.setup_run_id)
    return project.setup_run_id


def check_set_up_again(tx: Transaction, project: Project) -> None:
    """Raises `Conflict` while the onboarding runs."""
    if project.setup_run_id is None:
        return
    status = get_run(tx, project.setup_run_id).status
    if not status.stands:
        raise Conflict(f"the onboarding of project {project.id} is {status} already", hint="wait for its end")


def checked_columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a project as they are kept. Raises `Misuse` for the first that cannot be meant."""
    return {column: value for key, each in given.items() for column, value in _column(key, each).items()}


def _column(key: str, value: Any) -> dict[str, Any]:
    match key:
        case "name":
            return {"name": _name(value)}
        case "git_url":
            address = read_address(value)
            return {"git_url": address.text, "remote": remote_key(address.text)}
        case "base_branch":
            return {"base_branch": check_branch(value)}
        case "ci_provider":
            if value is not None and value not in PROVIDERS:
                raise Misuse(
                    f"{str(value)[:80]!r} is not a CI provider", hint=f"use one of: {', '.join(PROVIDERS)}"
                )
            return {"ci_provider": value}
        case "default_models":
            return {"default_models": check_models(value)}
    raise Misuse(f"a project has no {key[:80]!r} that can be changed")


def _start(tx: Transaction, runtime: Runtime, project_id: int) -> RunId:
    name = f"setup-{project_id}"
    run_id = start_run(
        tx, runtime, SETUP, kind="protocol", name=name, project_id=project_id, spec={"project": project_id}
    )
    change_project(tx, project_id, setup_run_id=run_id)
    tx.event("setup_enqueued", project_id=project_id, run_id=run_id, message="onboarding is in line")
    return run_id


def _name(name: str) -> str:
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise Misuse(
            f"{name[:80]!r} cannot be the name of a project",
            hint=f"use at most {_LONGEST_NAME} printable characters",
        )
    return name.strip()


def _path(local_path: str) -> str:
    path = Path(local_path).expanduser() if local_path.isprintable() else Path()
    if not path.is_absolute():
        raise Misuse(
            f"{local_path[:200]!r} is not an absolute path", hint="give the whole path of the repository"
        )
    return str(path)
