"""Saved workflows. A name has a row for each content that it had, and the last row is what is run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Misuse, NotFound, did_you_mean
from ratchet.ledger._columns import to_json
from ratchet.ledger.tables import step_results, workflows
from ratchet.ledger.transaction import Transaction

LARGEST_BYTES = 4 * 1024 * 1024
LONGEST_NAME = 150
# So many names are compared with one that is not there.
_NEARBY = 1000
_HOW = "`ratchet workflow list` shows what is saved"


@dataclass(frozen=True, slots=True)
class SavedWorkflow:
    """`spec` is the workflow as JSON and `hash` that of its content; `run_id` is the run that planned it."""

    id: int
    name: str
    version: str
    hash: str
    description: str
    spec: Any
    origin: str
    removed: bool
    run_id: int | None
    created_at: int


def save_workflow(
    tx: Transaction, spec_json: Mapping[str, Any], *, origin: str, run_id: int | None = None
) -> SavedWorkflow:
    """Keep a workflow under its `workflow_id`, as the one that is run from now on.

    Saving again what is saved already returns its row. The version is kept as the workflow has it.
    """
    name = _name(spec_json.get("workflow_id"))
    digest = content_hash(spec_json)
    # Two that save at once must not both find that nothing is there.
    tx.lock_keys(f"workflow {name}")
    known = find_workflow(tx, name)
    if known is not None and known.hash == digest:
        return known
    row = {
        "name": name,
        "version": str(spec_json.get("version") or "1.0.0"),
        "hash": digest,
        "description": str(spec_json.get("description") or ""),
        "spec": dict(spec_json),
        "origin": origin,
        "removed": False,
        "run_id": run_id,
        "created_at": tx.now,
    }
    tx.connection.execute(sa.insert(workflows).values(**row))
    told = {"workflow": name, "version": row["version"], "hash": digest, "origin": origin}
    tx.event("workflow.saved", message=f"{name} {row['version']}", run_id=run_id, data=told)
    return get_workflow(tx, name)


def find_workflow(tx: Transaction, name: str, version: str | None = None) -> SavedWorkflow | None:
    """What was saved last under this name and, if given, in this version."""
    query = sa.select(workflows).where(workflows.c.name == name, workflows.c.removed.is_(False))
    if version is not None:
        query = query.where(workflows.c.version == version)
    row = tx.connection.execute(query.order_by(workflows.c.id.desc()).limit(1)).mappings().first()
    return None if row is None else SavedWorkflow(**row)


def find_content(tx: Transaction, name: str, hash: str) -> SavedWorkflow | None:
    """What was saved under this name with this very content, whether or not it is what is run now."""
    query = sa.select(workflows).where(
        workflows.c.name == name, workflows.c.hash == hash, workflows.c.removed.is_(False)
    )
    row = tx.connection.execute(query.order_by(workflows.c.id.desc()).limit(1)).mappings().first()
    return None if row is None else SavedWorkflow(**row)


def get_workflow(tx: Transaction, name: str, version: str | None = None) -> SavedWorkflow:
    """As `find_workflow`. Raises `NotFound`."""
    found = find_workflow(tx, name, version)
    if found is None:
        raise _absent(tx, name, version)
    return found


def list_workflows(tx: Transaction, *, limit: int = 50, before: int | None = None) -> list[SavedWorkflow]:
    """The workflows as they are run, the last saved first: pass the last id as `before` for the next page."""
    later = workflows.alias("later")
    replaced = sa.exists().where(later.c.name == workflows.c.name, later.c.id > workflows.c.id)
    query = sa.select(workflows).where(workflows.c.removed.is_(False), ~replaced)
    if before is not None:
        query = query.where(workflows.c.id < before)
    rows = tx.connection.execute(query.order_by(workflows.c.id.desc()).limit(limit)).mappings()
    return [SavedWorkflow(**row) for row in rows]


def list_contents(
    tx: Transaction, name: str, *, limit: int = 50, before: int | None = None
) -> list[SavedWorkflow]:
    """All that was saved under one name, the last first."""
    query = sa.select(workflows).where(workflows.c.name == name, workflows.c.removed.is_(False))
    if before is not None:
        query = query.where(workflows.c.id < before)
    rows = tx.connection.execute(query.order_by(workflows.c.id.desc()).limit(limit)).mappings()
    return [SavedWorkflow(**row) for row in rows]


def remove_workflow(tx: Transaction, name: str) -> int:
    """Forget a workflow with all that it ever was; how many contents it had. Raises `NotFound`.

    The rows stay for the runs that they explain, and the name is free.
    """
    tx.lock_keys(f"workflow {name}")
    update = sa.update(workflows).where(workflows.c.name == name, workflows.c.removed.is_(False))
    gone = tx.connection.execute(update.values(removed=True)).rowcount
    if not gone:
        raise _absent(tx, name, None)
    tx.event("workflow.removed", message=name, data={"workflow": name, "contents": gone})
    return gone


def content_hash(spec_json: Mapping[str, Any]) -> str:
    """The same for the same content, whatever the order of its keys. Raises `Misuse` for what cannot be saved."""
    size = len(to_json(dict(spec_json)))
    if size > LARGEST_BYTES:
        raise Misuse(
            f"the workflow has {size} bytes as JSON, and at most {LARGEST_BYTES} are kept",
            hint="let its steps read large data from inputs",
        )
    text = json.dumps(dict(spec_json), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _absent(tx: Transaction, name: str, version: str | None) -> NotFound:
    absent = NotFound("workflow", name if version is None else f"{name} {version}")
    saved = sa.select(workflows.c.name).where(workflows.c.removed.is_(False)).distinct().limit(_NEARBY)
    near = did_you_mean(name, (each for each in tx.connection.execute(saved).scalars() if each != name))
    absent.hint = f"{near} {_HOW}" if near else _HOW
    return absent


def _name(given: Any) -> str:
    if not isinstance(given, str) or not given.strip():
        raise Misuse("the workflow has no workflow_id, so it cannot be saved", hint="give it one")
    if len(given) > LONGEST_NAME or not given.isprintable():
        raise Misuse(
            f"the workflow_id {given[:LONGEST_NAME]!r} cannot be the name of a saved workflow",
            hint=f"use at most {LONGEST_NAME} printable characters",
        )
    return given


_FIND = sa.select(step_results).where(step_results.c.key == sa.bindparam("wanted"))


@dataclass(frozen=True, slots=True)
class StepResult:
    key: str
    value: Any
    metrics: Any
    created_at: int


def find_step_result(tx: Transaction, key: str, *, not_before: int) -> StepResult | None:
    """The result known as `key`, unless it was made before the moment `not_before` (in milliseconds)."""
    row = tx.connection.execute(_FIND, {"wanted": key}).mappings().first()
    return None if row is None or row["created_at"] < not_before else StepResult(**row)


def keep_step_result(tx: Transaction, key: str, value: Any, metrics: Mapping[str, Any]) -> None:
    """Keep a result, in the place of an older one."""
    row = {"value": value, "metrics": dict(metrics), "created_at": tx.now}
    insert = tx.insert(step_results).values(key=key, **row)
    tx.connection.execute(insert.on_conflict_do_update(index_elements=["key"], set_=row))


def remove_step_results(tx: Transaction, *, before: int, limit: int = 10_000) -> int:
    """Forget the oldest results from before a moment; how many there were."""
    oldest = (
        sa.select(step_results.c.key)
        .where(step_results.c.created_at < before)
        .order_by(step_results.c.created_at)
        .limit(limit)
    )
    return tx.connection.execute(sa.delete(step_results).where(step_results.c.key.in_(oldest))).rowcount
