"""Audits: whether the specs of protocols still hold, and what they must have been where there is none.

Looking at a repository takes time, so it happens outside of transactions; what was found counts only if the spec is
still the one that was looked at.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import JobId, Misuse, NotFound, RatchetError, RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import Protocol, get_protocol, list_protocols
from ratchet.projects.clone import Clone, open_clone
from ratchet.protocols.jobs import AUDIT
from ratchet.protocols.spec.step_spec import Exists, ProtocolSpec, Qa, QaPolicy, StepSpec, files_of
from ratchet.protocols.spec.validation import judge_spec, record_spec, spec_problems
from ratchet.runtime import JobContext, Runtime, get_schedule, read_when, remove_schedule
from ratchet.runtime.job import BACKGROUND

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
    """Queue an audit of one protocol, of a project's or of all; with an interval, repeat it.

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
            # It was checked when it was changed; the next audit will look at it.
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
            message=f"the spec is {record['status']}" + (", made again" if backfilled else ""),
            data=record,
        )
        return record


def _record(protocol: Protocol, project: str, found: SpecInspection, *, backfilled: bool) -> dict[str, Any]:
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
        "protocol_root": protocol.root,
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


_CODEMACHINE = ".codemachine/"


@dataclass(frozen=True, slots=True)
class SpecInspection:
    """`spec` is the one that was made up for a protocol that has none; `problems` are those of the one that it has.

    Without `exists` the branch was not to be seen, and paths were not checked.
    """

    problems: tuple[str, ...] = ()
    spec: ProtocolSpec | None = None
    exists: Exists | None = None
    workspace: str | None = None


def inspect(runtime: Runtime, project: Project, protocol: Protocol, *, backfill: bool) -> SpecInspection:
    """Look at the branch of a protocol, if it is on this machine. Nothing is cloned or fetched for it."""
    # Who plans at the moment writes the spec next, and knows more than the files tell.
    wanted = backfill and protocol.status is not RunStatus.PLANNING
    try:
        with open_clone(runtime, project, make=False) as clone:
            return _inspect(clone, protocol, backfill=wanted)
    except (RatchetError, OSError) as error:
        return _unseen(protocol, str(error), backfill=wanted)


def _inspect(clone: Clone, protocol: Protocol, *, backfill: bool) -> SpecInspection:
    place, root = str(clone.path), protocol.root
    commit = clone.repository.ref(protocol.ref)
    if commit is None:
        return _unseen(protocol, f"there is no branch {protocol.name}", backfill=backfill, place=place)
    # Links are no files: they may point anywhere.
    files = [path for path, entry in clone.repository.list_files(commit).items() if entry.is_file]
    exists = files_of(files)
    if protocol.spec is not None:
        return SpecInspection(_problems(protocol, exists), exists=exists, workspace=place)
    if not backfill:
        return SpecInspection(exists=exists, workspace=place)
    names = [path.removeprefix(f"{root}/") for path in files if path.startswith(f"{root}/")]
    spec, problem = spec_from_files(names), f"there are no step files in {root}"
    if spec is None:
        try:
            spec = _from_codemachine(clone, commit, files)
        except Misuse as invalid:
            problem = f"none can be made: {invalid}"
    return SpecInspection(() if spec else (problem,), spec=spec, exists=exists, workspace=place)


def _unseen(protocol: Protocol, why: str, *, backfill: bool, place: str | None = None) -> SpecInspection:
    """A branch that cannot be seen says nothing against the spec that there is."""
    if protocol.spec is not None:
        return SpecInspection(_problems(protocol, None), workspace=place)
    return SpecInspection((f"none can be made: {why}",) if backfill else (), workspace=place)


def _problems(protocol: Protocol, exists: Exists | None) -> tuple[str, ...]:
    return tuple(spec_problems(protocol.spec, root=protocol.root, exists=exists))


def _from_codemachine(clone: Clone, commit: str, files: Iterable[str]) -> ProtocolSpec | None:
    """Raises `WorkspaceInvalid`, which is a `Misuse`."""
    if not any(path.startswith(_CODEMACHINE) for path in files):
        return None
    from ratchet.protocols.codemachine import read_workspace, to_protocol_spec

    with clone.repository.workspace(commit, name="audit") as workspace:
        return to_protocol_spec(read_workspace(workspace.path))


_STEP_FILE = re.compile(r"[0-9]{2}[^/]*\.md", re.ASCII)


def is_step_file(name: str) -> bool:
    """Whether a file of a protocol's folder is one of its steps, such as `01-build.md`."""
    return _STEP_FILE.fullmatch(name) is not None


def spec_from_files(names: Iterable[str], *, engine_id: str | None = None) -> ProtocolSpec | None:
    """A step for each step file, in the order of their names, judged in full; nothing without any."""
    steps = tuple(
        StepSpec(
            id=name.removesuffix(".md"),
            engine_id=engine_id,
            prompt_ref=name,
            qa=Qa(QaPolicy.FULL),
        )
        for name in sorted(filter(is_step_file, names))
    )
    return ProtocolSpec(steps) if steps else None


NAME = "protocols.audit"
LINE = "spec-audit"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# What comes at even times in cron: seconds in between, and the expression.
_EVEN = (
    (30, "*/30 * * * * *"),
    *((n * _MINUTE, f"*/{n} * * * *") for n in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)),
    *((n * _HOUR, f"0 */{n} * * *") for n in (1, 2, 3, 4, 6, 8, 12)),
    (_DAY, "0 0 * * *"),
)


def every(seconds: float) -> str:
    """When something comes that is wanted every so many seconds: at even times, not more often, but daily at least."""
    if not seconds > 0:
        raise Misuse(f"an interval must be above 0 seconds, not {seconds!r}")
    return next((cron for even, cron in _EVEN if even >= seconds), _EVEN[-1][1])


def keep_schedule(runtime: Runtime) -> None:
    """Have audits come as often as `protocols.audit_minutes` says, or not at all. One that a person paused stays so."""
    minutes = runtime.settings.protocols.audit_minutes
    wanted = None if minutes is None else read_when(every(minutes * _MINUTE)).cron
    with runtime.ledger.read() as tx:
        try:
            there = get_schedule(tx, NAME).cron
        except NotFound:
            there = None
    if there == wanted:
        return
    with runtime.ledger.write() as tx:
        if wanted is not None:
            runtime.put_schedule(tx, NAME, wanted, AUDIT, {"unfinished": True}, key=LINE, priority=BACKGROUND)
            return
        try:
            remove_schedule(tx, NAME)
        except NotFound:
            # Another process that starts at this moment was quicker.
            return
