"""Commits of a run's repository that travel through the ledger, to workers that do not share the disk they are on.

Each commit that a row tells of is an artifact of its run, in the transaction of the row: a pack with what it adds to
the commits that are recorded already. So one commit costs what it changed, however long the history is. A ref that
moves is recorded again, without content where its commit is recorded under another name.
"""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger import ArtifactStore, Ledger, Transaction
from ratchet.ledger.artifacts import PACK
from ratchet.ledger.tables import artifact_contents, artifacts
from ratchet.workspaces.repository import Repository

_RECORDED = (
    sa.select(artifacts.c.name, artifacts.c.sha256, artifact_contents.c.content)
    .outerjoin(artifact_contents, artifact_contents.c.artifact_id == artifacts.c.id)
    .where(artifacts.c.run_id == sa.bindparam("run_id"), artifacts.c.media_type == PACK)
    .order_by(artifacts.c.id)
)


def record_commit(
    tx: Transaction, store: ArtifactStore, run_id: int, ref: str, commit: str, pack: bytes = b""
) -> None:
    """Keep a commit, which a repository of the run calls `ref`, with what it adds to those that are recorded."""
    store.put(tx, pack, name=f"{ref} {commit}", media_type=PACK, run_id=run_id, pinned=True)


def fetch_commits(ledger: Ledger, run_id: int, repository: Repository) -> int:
    """Bring the commits and refs that are recorded of a run, as far as they are not here; how many commits.

    A ref that is somewhere else already only moves forward: what a person has put on a branch stays.

    Raises `NotFound` or `LedgerCorrupt` for one that the store has lost, and `LedgerUnavailable`.
    """
    with ledger.read() as tx:
        rows = tx.connection.execute(_RECORDED, {"run_id": run_id}).all()
    here = repository.refs("refs/")
    known = set(here.values())
    names = [str(row.name).split(" ") for row in rows]
    wanted = [row for row, (_, commit) in zip(rows, names, strict=True) if commit not in known]
    repository.unpack(
        row.content if row.content is not None else ledger.artifacts.read(row.sha256) for row in wanted
    )
    # Last: what a ref names is here with all of its history.
    moved = {ref: commit for ref, commit in dict(names).items() if here.get(ref) != commit}
    repository.put_refs(
        {
            ref: commit
            for ref, commit in moved.items()
            if ref not in here or repository.is_ancestor(here[ref], commit)
        }
    )
    return len(wanted)
