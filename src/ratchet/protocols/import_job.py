"""Importing a CodeMachine workspace as a job, for those who do not want to wait."""

from __future__ import annotations

import asyncio
from typing import Any

from ratchet.kernel import Conflict, JobId
from ratchet.ledger import Transaction
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import find_protocol
from ratchet.protocols.codemachine import import_workspace
from ratchet.protocols.codemachine.specs import SOURCE
from ratchet.protocols.jobs import IMPORT
from ratchet.protocols.naming import check_name
from ratchet.runtime import JobContext, Runtime


def enqueue_import(
    tx: Transaction, runtime: Runtime, project_id: int, *, protocol_name: str, **wanted: Any
) -> JobId:
    """Put an import in line; `wanted` is as `import_workspace` takes it. Raises what is known to fail already."""
    project = get_project(tx, project_id)
    check_name(protocol_name)
    if find_protocol(tx, project_id, protocol_name) is not None:
        raise Conflict(f"the project has a protocol {protocol_name!r} already", hint="take another name")
    payload = {"project_id": project_id, "protocol_name": protocol_name, **wanted}
    job_id = runtime.enqueue(tx, IMPORT, payload, key=f"import:{project_id}:{protocol_name}")
    assert job_id is not None
    tx.event(
        "codemachine_import_enqueued",
        project_id=project.id,
        job_id=job_id,
        message=f"the import of {protocol_name} is in line",
        data={"protocol_name": protocol_name},
    )
    return job_id


async def import_in_job(job: JobContext) -> object:
    """Import what the job names. One that a dead process has finished is only remembered."""
    wanted = dict(job.payload)
    project_id, name = wanted.pop("project_id"), wanted.pop("protocol_name")
    done = await asyncio.to_thread(_imported, job, project_id, name)
    if done is None:
        done = await asyncio.to_thread(
            import_workspace, job.runtime, project_id, protocol_name=name, actor=job.process_id, **wanted
        )
    return {"protocol_run_id": done}


def _imported(job: JobContext, project_id: int, name: str) -> int | None:
    with job.ledger.read() as tx:
        found = find_protocol(tx, project_id, name)
    if found is None or found.created_at < job.job.created_at:
        return None
    return found.run_id if (found.template_source or {}).get("source") == SOURCE else None
