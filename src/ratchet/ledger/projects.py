"""Projects: the git repositories that work is done on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Conflict, NotFound, ProjectId, RunId
from ratchet.ledger.tables import project_secrets, projects
from ratchet.ledger.transaction import Transaction

DEFAULT_BRANCH = "main"


@dataclass(frozen=True, slots=True)
class Project:
    """`facts` are what was found out about the repository, and what people settled.

    `remote` is the key that all addresses of one repository share; `token_hash` the SHA-256 of the project's API token.
    """

    id: ProjectId
    name: str
    git_url: str | None
    local_path: str | None
    base_branch: str
    ci_provider: str | None
    default_models: dict[str, Any]
    facts: dict[str, Any]
    remote: str | None
    token_hash: str | None
    setup_run_id: RunId | None
    archived_at: int | None
    created_at: int
    updated_at: int


def add_project(tx: Transaction, name: str, **values: Any) -> ProjectId:
    """A new project, with whatever other columns it has. Raises `Conflict` when its name is taken."""
    row = {"name": name, "created_at": tx.now, "updated_at": tx.now, **values}
    try:
        with tx.connection.begin_nested():
            number = tx.connection.execute(
                sa.insert(projects).values(**row).returning(projects.c.id)
            ).scalar_one()
    except exc.IntegrityError as error:
        raise Conflict(
            f"there is a project {name!r} already", hint="take another name, or use that one"
        ) from error
    tx.event("project.created", project_id=number, message=name)
    return ProjectId(number)


def change_project(tx: Transaction, project_id: int, **values: Any) -> None:
    """Set columns of a project. Raises `NotFound`, and `Conflict` when a new name is taken."""
    update = sa.update(projects).where(projects.c.id == project_id).values(updated_at=tx.now, **values)
    try:
        with tx.connection.begin_nested():
            changed = tx.connection.execute(update)
    except exc.IntegrityError as error:
        raise Conflict(
            f"there is a project {values.get('name')!r} already", hint="take another name"
        ) from error
    if not changed.rowcount:
        raise NotFound("project", project_id)


def add_facts(tx: Transaction, project_id: int, facts: Mapping[str, Any]) -> None:
    """Add to what is known about a project; what is known under other names stays. Raises `NotFound`."""
    locked = sa.select(projects.c.facts).where(projects.c.id == project_id).with_for_update()
    row = tx.connection.execute(locked).first()
    if row is None:
        raise NotFound("project", project_id)
    change_project(tx, project_id, facts={**(row.facts or {}), **facts})


def get_project(tx: Transaction, project_id: int) -> Project:
    """Raises `NotFound`."""
    row = tx.connection.execute(sa.select(projects).where(projects.c.id == project_id)).mappings().first()
    if row is None:
        raise NotFound("project", project_id)
    return _project(row)


def find_project(tx: Transaction, name: str) -> Project | None:
    row = tx.connection.execute(sa.select(projects).where(projects.c.name == name)).mappings().first()
    return None if row is None else _project(row)


def projects_at(tx: Transaction, local_path: str) -> list[Project]:
    """Every project whose repository lies there, oldest first, but archived ones."""
    wanted = (
        sa.select(projects)
        .where(projects.c.local_path == local_path, projects.c.archived_at.is_(None))
        .order_by(projects.c.id)
    )
    return [_project(row) for row in tx.connection.execute(wanted).mappings()]


def list_projects(
    tx: Transaction, *, before: int | None = None, limit: int = 100, archived: bool = False
) -> list[Project]:
    """Newest first, a page below `before`; archived ones only when asked for."""
    wanted = sa.select(projects).order_by(projects.c.id.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(projects.c.id < before)
    if not archived:
        wanted = wanted.where(projects.c.archived_at.is_(None))
    return [_project(row) for row in tx.connection.execute(wanted).mappings()]


def projects_of_remote(tx: Transaction, remote: str) -> list[Project]:
    """Every project that works on the repository of that key, oldest first, but archived ones."""
    wanted = (
        sa.select(projects)
        .where(projects.c.remote == remote, projects.c.archived_at.is_(None))
        .order_by(projects.c.id)
    )
    return [_project(row) for row in tx.connection.execute(wanted).mappings()]


def _project(row: sa.RowMapping) -> Project:
    filled = {
        "base_branch": row["base_branch"] or DEFAULT_BRANCH,
        "default_models": row["default_models"] or {},
        "facts": row["facts"] or {},
        "updated_at": row["updated_at"] or row["created_at"],
    }
    return Project(**{**row, **filled})


def put_ciphertext(tx: Transaction, project_id: int, name: str, ciphertext: str) -> None:
    """Keep a secret, in place of the one of that name."""
    kept = {"value": ciphertext, "updated_at": tx.now}
    insert = tx.insert(project_secrets).values(project_id=project_id, name=name, **kept)
    tx.connection.execute(insert.on_conflict_do_update(index_elements=["project_id", "name"], set_=kept))


def get_ciphertext(tx: Transaction, project_id: int, name: str) -> str | None:
    wanted = sa.select(project_secrets.c.value).where(*_one(project_id, name))
    return tx.connection.execute(wanted).scalar()


def remove_ciphertext(tx: Transaction, project_id: int, name: str) -> None:
    """Forget a secret; absent is fine."""
    tx.connection.execute(sa.delete(project_secrets).where(*_one(project_id, name)))


def names_of_secrets(tx: Transaction, project_id: int) -> list[str]:
    wanted = sa.select(project_secrets.c.name).where(project_secrets.c.project_id == project_id)
    return sorted(tx.connection.execute(wanted).scalars())


def names_by_project(tx: Transaction, project_ids: Sequence[int]) -> dict[int, list[str]]:
    """The names of the secrets of several projects at once."""
    found: dict[int, list[str]] = {number: [] for number in project_ids}
    kept = sa.select(project_secrets.c.project_id, project_secrets.c.name).order_by(project_secrets.c.name)
    for row in tx.connection.execute(kept.where(project_secrets.c.project_id.in_(found))) if found else ():
        found[row.project_id].append(row.name)
    return found


def _one(project_id: int, name: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return project_secrets.c.project_id == project_id, project_secrets.c.name == name
