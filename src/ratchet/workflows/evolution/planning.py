"""One try as the loop makes it: who is asked for what, and who judges what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ratchet.engines import Engine, Request
from ratchet.ledger import Spender
from ratchet.ledger.runs import Run
from ratchet.ledger.sessions import get_session
from ratchet.loop import GitTrunk, Plan
from ratchet.runtime import JobContext
from ratchet.tools.call import Occasion, ToolFailed, ToolResult
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool
from ratchet.workflows.evolution.author import Author
from ratchet.workflows.evolution.judge import VariantJudge
from ratchet.workflows.evolution.lineage import Earlier, earlier_tries, refused_variants
from ratchet.workflows.evolution.parts import parts_of
from ratchet.workflows.evolution.prompt import make_prompt, system_prompt
from ratchet.workflows.evolution.subject import Subject
from ratchet.workflows.evolution.taking import Tried
from ratchet.workflows.evolution.wish import Wish
from ratchet.workspaces import Repository

_CALL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Work:
    """What the tries of one run have in common. `base` is the commit of the version to beat."""

    job: JobContext
    run: Run
    wish: Wish
    subject: Subject
    repository: Repository
    base: str
    engine: Engine
    seconds_left: Callable[[], float]


def plan_try(work: Work, tried: list[Tried]) -> Plan:
    """The next try, told of all that went before."""
    job, run, subject = work.job, work.run, work.subject
    with job.ledger.read() as tx:
        earlier = earlier_tries(tx, subject.row.id, but_run=run.id)
        refused = refused_variants(tx, subject.row.id, subject.incumbent.id)
    name = f"run {run.id}, try {len(tried) + 1}"
    return Plan(
        trunk=GitTrunk(
            repository=work.repository,
            base=work.base,
            ref=_ref(work),
            message=f"{work.wish.tool}: {name}",
        ),
        engine=Author(work.engine, parts_of(subject.tool), name),
        request=_request(work, [*earlier, *map(_as_earlier, tried)], tried),
        judge=VariantJudge(
            incumbent=subject.tool,
            examples=subject.examples,
            held_out=subject.held_out,
            repeats=job.runtime.settings.workflows.evolution.repeats,
            call=partial(_call, job, run),
            tests=subject.tests,
            refused=refused,
        ),
    )


def _ref(work: Work) -> str:
    """What moves when a variant passes: a ref of the run. Which version is called is up to the ledger alone."""
    ref = f"refs/evolution/{work.run.id}/{work.subject.row.id}"
    if work.repository.ref(ref) is None:
        work.repository.advance(ref, work.base, expected=None)
    return ref


def _request(work: Work, earlier: list[Earlier], tried: list[Tried]) -> Request:
    can, subject = work.engine.capabilities, work.subject
    prompt = make_prompt(
        subject.tool,
        parts_of(subject.tool),
        subject.stats,
        subject.failures,
        earlier,
        why=work.wish.why,
        edits_files=can.edits_files,
    )
    most = work.job.runtime.settings.workflows.evolution.session_seconds
    request = Request(
        prompt=prompt,
        system=system_prompt(subject.tool),
        model=work.wish.model,
        hidden=_private(work.job),
        deadline_seconds=min(most, work.seconds_left()),
    )
    return _with_scores(work.job, request, tried) if can.learns_scores else request


def _with_scores(job: JobContext, request: Request, tried: list[Tried]) -> Request:
    """For an engine that searches by scores: where it was, and how its last proposal did."""
    data: dict[str, Any] = {"trial": len(tried), "feedback": []}
    resume = None
    if tried and tried[-1].session_id is not None:
        data["feedback"] = [{"proposal": tried[-1].proposal, "score": tried[-1].score}]
        with job.ledger.read() as tx:
            resume = get_session(tx, tried[-1].session_id).resume
    return replace(request, data=data, resume=resume, system=None)


def _private(job: JobContext) -> tuple[Path, ...]:
    """Where the real inputs lie: a session sees the machine, but not these."""
    path = job.ledger.path
    beside = () if path is None else (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
    return (job.ledger.artifacts.root, *beside)


async def _call(job: JobContext, run: Run, tool: Tool, values: Mapping[str, Any]) -> ToolResult:
    occasion = Occasion(
        job.runtime,
        Spender(run_id=run.id, project_id=run.project_id),
        actor=job.process_id,
        seconds=tool.timeout or _CALL_SECONDS,
        folder=tool.folder,
    )
    called = await call_tool(tool, values, occasion)
    if called.simulated and not run.simulated:
        raise ToolFailed(
            f"tool {tool.id} answered from a recording, which proves nothing", use=called.use, final=True
        )
    return called


def _as_earlier(tried: Tried) -> Earlier:
    return Earlier(tried.summary, tried.promoted, tried.reason, tried.measurements)
