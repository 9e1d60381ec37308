"""The secrets of projects as they are kept: ciphertexts that nothing here can read."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from ratchet.ledger.tables import project_secrets
from ratchet.ledger.transaction import Transaction


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
