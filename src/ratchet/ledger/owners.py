"""Which project a thing belongs to, so that a token of one project opens nothing of another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from ratchet.ledger.artifacts import Artifact
from ratchet.ledger.tables import approvals, artifacts, attempts, jobs, projects, runs, steps
from ratchet.ledger.transaction import Transaction

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
