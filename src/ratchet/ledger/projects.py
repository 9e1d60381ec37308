"""Projects: the git repositories that work is done on, and which project a thing belongs to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Conflict, NotFound, ProjectId, RunId
from ratchet.ledger.artifacts import Artifact
from ratchet.ledger.tables import approvals, artifacts, attempts, jobs, project_secrets, projects, runs, steps
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


Kind = Literal["project", "run", "step", "attempt", "job", "approval"]

_TABLE: dict[Kind, sa.Table] = {
    "project": projects,
    "run": runs,
    "step": steps,
    "attempt": attempts,
    "job": jobs,
    "approval": approvals,
}


def _with_project(table: sa.Table) -> sa.FromClause:
    if table is projects:
        return projects
    of_run = table if table is runs else table.outerjoin(runs, runs.c.id == table.c.run_id)
    return of_run.outerjoin(projects, projects.c.id == runs.c.project_id)


# Built once: one of them runs for almost every request.
_OWNER = {
    kind: sa.select(projects.c.id, projects.c.token_hash)
    .select_from(_with_project(table))
    .where(table.c.id == sa.bindparam("wanted"))
    for kind, table in _TABLE.items()
}
_OF_TOKEN = sa.select(projects.c.id).where(projects.c.token_hash == sa.bindparam("wanted")).limit(2)


@dataclass(frozen=True, slots=True)
class Owner:
    """The project of a thing, and the hash of the token that guards it; both empty for what is nobody's."""

    project_id: int | None
    token_hash: str | None


def owner_of(tx: Transaction, kind: Kind, number: int) -> Owner | None:
    """Whose a thing is; nothing when there is no such thing."""
    row = tx.connection.execute(_OWNER[kind], {"wanted": number}).first()
    return None if row is None else Owner(row.id, row.token_hash)


def project_of_token(tx: Transaction, token_hash: str) -> int | None:
    """The project with this token. One that two projects share tells nothing, so it is nobody's."""
    found = tx.connection.execute(_OF_TOKEN, {"wanted": token_hash}).scalars().all()
    return found[0] if len(found) == 1 else None


def tokens_of(tx: Transaction, project_ids: Collection[int]) -> dict[int, str]:
    """Those of these projects that have a token, with its hash."""
    if not project_ids:
        return {}
    wanted = sa.select(projects.c.id, projects.c.token_hash).where(
        projects.c.id.in_(project_ids), projects.c.token_hash.is_not(None)
    )
    return {row.id: row.token_hash for row in tx.connection.execute(wanted)}


def projects_of_runs(tx: Transaction, run_ids: Collection[int]) -> dict[int, int | None]:
    """The project of each run, for a page of things that know their run only."""
    if not run_ids:
        return {}
    rows = tx.connection.execute(sa.select(runs.c.id, runs.c.project_id).where(runs.c.id.in_(run_ids)))
    return {row.id: row.project_id for row in rows}


def artifact_of_project(tx: Transaction, sha256: str, project_id: int) -> Artifact | None:
    """The newest artifact with this content that a run of the project has."""
    return _newest(tx, sha256, runs.c.project_id == project_id)


def artifact_behind(tx: Transaction, sha256: str, tokens: Collection[str]) -> Artifact | None:
    """The newest artifact with this content that no token guards, or one of those with these hashes."""
    return _newest(tx, sha256, projects.c.token_hash.is_(None) | projects.c.token_hash.in_(tokens))


def _newest(tx: Transaction, sha256: str, condition: sa.ColumnElement[bool]) -> Artifact | None:
    wanted = (
        sa.select(artifacts)
        .select_from(_with_project(artifacts))
        .where(artifacts.c.sha256 == sha256, condition)
        .order_by(artifacts.c.id.desc())
        .limit(1)
    )
    row = tx.connection.execute(wanted).mappings().first()
    return None if row is None else Artifact(**row)
