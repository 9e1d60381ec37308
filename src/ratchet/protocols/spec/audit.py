"""Audits: whether the specs of protocols still hold, and what they must have been where there is none.

Looking at a repository takes time, so it happens outside of transactions; what was found counts only if the spec is
still the one that was looked at.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ratchet.kernel import JobId, NotFound
from ratchet.ledger import Transaction
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import Protocol, get_protocol, list_protocols
from ratchet.protocols.audit_schedule import LINE, every
from ratchet.protocols.jobs import AUDIT
from ratchet.protocols.spec.inspection import Inspection, inspect
from ratchet.protocols.spec.recording import judge_spec, record_spec, root_of
from ratchet.runtime import JobContext, Runtime

_PAGE = 50
Write = Callable[[], AbstractContextManager[Transaction]]


def start_audit(
    tx: Transaction,
    runtime: Runtime,
    *,
    project_id: int | None = None,
    protocol_id: int | None = None,
    backfill: bool = False,
    interval_seconds: float | None = None,
) -> JobId:
    """Put an audit of one protocol, of a project's or of all in line; with an interval, have it come again.

    Raises `NotFound`, also for a protocol of another project.
    """
    if project_id is not None:
        get_project(tx, project_id)
    if protocol_id is not None and project_id not in (None, get_protocol(tx, protocol_id).project_id):
        raise NotFound("protocol", f"{protocol_id} in project {project_id}")
    payload = {"project_id": project_id, "protocol_id": protocol_id, "backfill": backfill}
    if interval_seconds is not None:
        name = _schedule_name(project_id, protocol_id)
        runtime.put_schedule(tx, name, every(interval_seconds), AUDIT, payload, key=LINE)
    made = runtime.enqueue(tx, AUDIT, payload, key=LINE)
    assert made is not None
    return made


async def audit(job: JobContext) -> object:
    """Audit what the job asks for, one protocol after the other. One that was audited before a crash is left out."""
    wanted = job.payload
    backfill = bool(wanted.get("backfill"))
    one = wanted.get("protocol_id")
    if one is not None:
        return await asyncio.to_thread(audit_protocol, job.write, job.runtime, one, backfill=backfill)
    counts: Counter[str] = Counter()
    before: int | None = None
    while page := await asyncio.to_thread(_page, job, before):
        for protocol in page:
            job.give_way()
            if (protocol.spec_validated_at or 0) <= job.job.created_at:
                record = await asyncio.to_thread(
                    audit_protocol, job.write, job.runtime, protocol.run_id, backfill=backfill
                )
                counts.update([str(record["status"]), *(["backfilled"] if record["backfilled"] else [])])
        before = page[-1].run_id
    return dict(counts)


def audit_protocol(write: Write, runtime: Runtime, run_id: int, *, backfill: bool) -> dict[str, Any]:
    """Audit one protocol and record what was found. `write` opens a transaction, as `JobContext.write` does.

    Nothing of the protocol changes but its spec, and that only when it has none and `backfill` finds one. Raises
    `NotFound`.
    """
    with runtime.ledger.read() as tx:
        protocol = get_protocol(tx, run_id)
        project = get_project(tx, protocol.project_id)
    found = inspect(runtime, project, protocol, backfill=backfill)
    with write() as tx:
        now = get_protocol(tx, run_id)
        if now.spec_hash != protocol.spec_hash:
            # Whoever changed it has had it checked; the next audit will look at it.
            return _record(now, project.name, found, backfilled=False)
        backfilled = found.spec is not None
        if found.spec is not None:
            record_spec(tx, run_id, found.spec, exists=found.exists)
        else:
            judge_spec(tx, now, found.problems)
        record = _record(get_protocol(tx, run_id), project.name, found, backfilled=backfilled)
        tx.event(
            "spec_audit",
            run_id=run_id,
            project_id=project.id,
            message=f"the spec is {record['status']}" + (", made anew" if backfilled else ""),
            data=record,
        )
        return record


def _record(protocol: Protocol, project: str, found: Inspection, *, backfilled: bool) -> dict[str, Any]:
    return {
        "protocol_run_id": protocol.run_id,
        "protocol_name": protocol.name,
        "project_id": protocol.project_id,
        "project_name": project,
        "status": protocol.spec_status,
        "spec_hash": protocol.spec_hash,
        "errors": protocol.spec_errors or [],
        "backfilled": backfilled,
        "workspace": found.workspace,
        "protocol_root": root_of(protocol),
        "paths_checked": found.exists is not None,
    }


def _page(job: JobContext, before: int | None) -> list[Protocol]:
    with job.ledger.read() as tx:
        return list_protocols(
            tx,
            project_id=job.payload.get("project_id"),
            before=before,
            limit=_PAGE,
            unfinished=bool(job.payload.get("unfinished")),
        )


def _schedule_name(project_id: int | None, protocol_id: int | None) -> str:
    if protocol_id is not None:
        return f"{LINE}-protocol-{protocol_id}"
    return LINE if project_id is None else f"{LINE}-project-{project_id}"
