"""One tool, rewritten: try after try, until one is better or none is left.

Every stage is found again in the ledger. A process that takes over pays for no session twice and does not
measure again what has a verdict; and a promotion is one transaction, so it is there or it is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ratchet.engines import Engine, Failure, Request
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.kernel import BudgetExceeded, Conflict, Misuse, NotFound, RunStatus
from ratchet.ledger import Spender, change_run
from ratchet.ledger.runs import Run
from ratchet.ledger.tools import VersionRow, get_tool, note_examples
from ratchet.ledger.usage import get_session
from ratchet.loop import GitTrunk, Plan, attempt
from ratchet.memory import MemoryFault, open_memory
from ratchet.observe.logs import logger
from ratchet.placement import placement_for
from ratchet.runtime import JobContext, Runtime, complete_run, enter_run, run_step
from ratchet.tools.call import CALL_SECONDS, Occasion, ToolCallFailed, ToolResult
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool
from ratchet.tools.invocation import test_tool
from ratchet.workflows.evolution.author import (
    Earlier,
    VariantAuthor,
    earlier_tries,
    make_prompt,
    refused_variants,
    system_prompt,
)
from ratchet.workflows.evolution.graph import look_at_tools
from ratchet.workflows.evolution.health import tool_of
from ratchet.workflows.evolution.judge import VariantJudge
from ratchet.workflows.evolution.outcome import Evolved, EvolveRequest, VariantTry, given_up, settle
from ratchet.workflows.evolution.parts import parts_of
from ratchet.workflows.evolution.subject import (
    Subject,
    check_evolvable,
    choose_subject,
    input_hash,
    is_repeatable,
    read_cases,
    remembered_subject,
    write_cases,
)
from ratchet.workflows.memory import remember_fix
from ratchet.workflows.runs.tool_workflow import with_workflows
from ratchet.workspaces import Repository
from ratchet.workspaces.packs import fetch_commits, record_commit

Announce = Callable[[JobContext, str], None]
"""Is called with the progress of a run."""
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class EvolutionContext:
    """What the tries of one run have in common. `base` is the commit of the version to beat."""

    job: JobContext
    run: Run
    wish: EvolveRequest
    subject: Subject
    repository: Repository
    base: str
    engine: Engine
    seconds_left: Callable[[], float]


def plan_try(work: EvolutionContext, tried: list[VariantTry]) -> Plan:
    """The next try, which knows of all before."""
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
        engine=VariantAuthor(work.engine, parts_of(subject.tool), name),
        request=_request(work, [*earlier, *map(_as_earlier, tried)], tried),
        judge=VariantJudge(
            incumbent=subject.tool,
            examples=subject.examples,
            held_out=subject.held_out,
            repeats=job.runtime.settings.workflows.evolution.repeats,
            generated=job.runtime.settings.workflows.evolution.generated,
            call=partial(_call, job, run),
            tests=subject.tests,
            placement=placement_for(job.runtime.settings),
            refused=refused,
            asks_models=subject.asks_models,
        ),
    )


def _ref(work: EvolutionContext) -> str:
    """What moves when a variant passes: a ref of the run. Which version is called is up to the ledger alone."""
    ref = f"refs/evolution/{work.run.id}/{work.subject.row.id}"
    if work.repository.ref(ref) is None:
        work.repository.advance(ref, work.base, expected=None)
    return ref


def _request(work: EvolutionContext, earlier: list[Earlier], tried: list[VariantTry]) -> Request:
    can, subject = work.engine.capabilities, work.subject
    prompt = make_prompt(
        subject,
        parts_of(subject.tool),
        earlier,
        why=work.wish.why,
        edits_files=can.edits_files,
    )
    most = work.job.runtime.settings.workflows.evolution.session_seconds
    request = Request(
        prompt=prompt,
        system=system_prompt(subject.tool),
        model=work.wish.model,
        hidden=_private(work.job, subject),
        deadline_seconds=min(most, work.seconds_left()),
    )
    return _with_scores(work.job, request, tried) if can.learns_scores else request


def _with_scores(job: JobContext, request: Request, tried: list[VariantTry]) -> Request:
    """For an engine that searches by scores: where it was, and how its last proposal did."""
    data: dict[str, Any] = {"trial": len(tried), "feedback": []}
    resume = None
    if tried and tried[-1].session_id is not None:
        data["feedback"] = [{"proposal": tried[-1].proposal, "score": tried[-1].score}]
        with job.ledger.read() as tx:
            resume = get_session(tx, tried[-1].session_id).resume
    return replace(request, data=data, resume=resume, system=None)


def _private(job: JobContext, subject: Subject) -> tuple[Path, ...]:
    """Where the real inputs and the examples lie: a session sees the machine, but not these."""
    path, source = job.ledger.path, Path(subject.row.source)
    beside = () if path is None else (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
    return (job.ledger.artifacts.root, *beside, *([source] if source.is_absolute() else []))


async def _call(job: JobContext, run: Run, tool: Tool, values: Mapping[str, Any]) -> ToolResult:
    occasion = Occasion(
        job.runtime,
        Spender(run_id=run.id, project_id=run.project_id),
        actor=job.process_id,
        seconds=tool.timeout or CALL_SECONDS,
        folder=tool.folder,
        tried=True,
    )
    called = await call_tool(tool, values, with_workflows(occasion))
    if called.simulated and not run.simulated:
        raise ToolCallFailed(
            f"tool {tool.id} answered from a recording, which proves nothing", use=called.use, final=True
        )
    return called


def _as_earlier(tried: VariantTry) -> Earlier:
    return Earlier(tried.summary, tried.promoted, tried.reason, tried.measurements)


def announce(job: JobContext, stage: str) -> None:
    """An event for those who watch."""
    with job.write() as tx:
        tx.event("evolution.stage", message=stage, run_id=job.run_id)


async def evolve_one(
    job: JobContext,
    run: Run,
    wish: EvolveRequest,
    *,
    tell: Announce = announce,
    seconds_left: Callable[[], float] = lambda: math.inf,
) -> Evolved:
    """Ask for variants of a tool until one is promoted, or as long as money and time last."""
    settings = job.runtime.settings.workflows.evolution
    surroundings = EngineContext(job.runtime.settings, job.runtime.home, os.environ)
    engine = open_engine(wish.engine or settings.engine, surroundings)
    begun = await run_step(job, f"{wish.step}begin", lambda _: _begin(job, wish))
    with job.ledger.read() as tx:
        subject = remembered_subject(tx, begun, read_cases(job.ledger.artifacts.read(begun["cases"])))
    tried: list[VariantTry] = []
    with _repository(job, subject.row.id) as repository:
        if job.ledger.artifacts.travels:
            await asyncio.to_thread(fetch_commits, job.ledger, run.id, repository)
        work = EvolutionContext(job, run, wish, subject, repository, begun["base"], engine, seconds_left)
        for number in range(1, settings.tries + 1):
            if seconds_left() <= 0:
                return given_up(wish, tried, "the time is over", exhausted=True)
            tell(job, f"{wish.tool}: try {number}")
            try:
                ended = await attempt(job, f"{wish.step}try {number}", plan_try(work, tried))
            except BudgetExceeded as exceeded:
                return given_up(wish, tried, str(exceeded), exhausted=True)
            tell(job, f"{wish.tool}: judged")
            tried.append(settle(job, run, subject, repository, ended, engine.name))
            tell(job, f"{wish.tool}: recorded")
            passed = ended.verdict is not None and ended.verdict.passed
            # One that passed and was not taken met something that stands in the way of the next one too.
            if passed or (ended.failure is not None and Failure(ended.failure).is_hopeless):
                break
    return _summed_up(wish, tried)


async def _begin(job: JobContext, wish: EvolveRequest) -> dict[str, Any]:
    """Fix what is rewritten and what it is judged by, for all tries and for a process that resumes them."""
    settings = job.runtime.settings.workflows.evolution
    with job.ledger.read() as tx:
        tool = get_tool(tx, wish.tool, folder=wish.folder)
        version = check_evolvable(tx, tool)
    definition = tool_of(tool, version)
    asks_models = False
    if definition.workflow is not None:
        seen = await look_at_tools(job.runtime, definition)
        if seen.obstacle is not None:
            raise Misuse(
                f"no variant of the workflow {tool.name} can be tried: {seen.obstacle}",
                hint="rewrite it by hand",
            )
        asks_models = seen.asks_models
    failing = await failing_examples(job, version, definition)
    with job.ledger.read() as tx:
        subject = choose_subject(tx, tool, cases=settings.cases, low=settings.low)
    with _repository(job, tool.id) as repository:
        base = _base(repository, subject.incumbent, subject.tool)
        store = job.ledger.artifacts
        pack = repository.pack(base) if store.travels else None
    with job.write() as tx:
        if pack is not None:
            record_commit(tx, store, job.run_id, f"refs/evolution/{job.run_id}/{tool.id}", base, pack)
        kept = store.put(
            tx,
            write_cases(subject.held_out),
            name="held-out-inputs.json",
            media_type="application/json",
            run_id=job.run_id,
        )
    return {
        "tool": tool.name,
        "tool_id": tool.id,
        "incumbent_id": subject.incumbent.id,
        "version": subject.incumbent.version,
        "base": base,
        "cases": kept.sha256,
        "failing": failing,
        "asks_models": asks_models,
    }


async def failing_examples(job: JobContext, version: VersionRow, tool: Tool) -> list[str]:
    """The examples that a version fails, by the hashes of their inputs; how many they are is kept with the version.

    Those of a tool that asks a model are not run: that costs money, and another answer may come next time.
    """
    if not is_repeatable(tool) or not any(example.checked for example in tool.examples):
        return []
    if tool.workflow is not None:
        seen = await look_at_tools(job.runtime, tool)
        if seen.asks_models or seen.obstacle is not None:
            return []
    occasion = Occasion(job.runtime, actor=job.process_id, seconds=tool.timeout or CALL_SECONDS, tried=True)
    occasion = with_workflows(occasion)
    tested = await test_tool(tool, occasion)
    if tested.failed is not None:
        with job.write() as tx:
            note_examples(tx, version.id, tested.failed)
    return [input_hash(each.input) for each in tested.results if each.checked and not each.passed]


@contextmanager
def _repository(job: JobContext, tool_id: int) -> Iterator[Repository]:
    """Where the versions of a tool are commits."""
    path = job.runtime.home / "evolution" / str(tool_id) / "repo.git"
    try:
        repository = Repository.open(path) if path.exists() else Repository.create(path)
    except Conflict:
        # Another run made it just now.
        repository = Repository.open(path)
    try:
        yield repository
    finally:
        repository.close()


def _base(repository: Repository, incumbent: VersionRow, tool: Tool) -> str:
    """The commit of the version in use: the one that was judged, or a first one for what came from elsewhere."""
    made = (incumbent.verdict or {}).get("commit")
    if made is not None:
        try:
            return repository.resolve(made)
        except NotFound:
            # It was made in another home; its text is in the ledger all the same.
            pass
    files: dict[str, bytes | None] = {name: text.encode() for name, text in parts_of(tool).items()}
    return repository.commit_files(files, parent=None, message=f"{tool.id} {incumbent.version}")


def _summed_up(wish: EvolveRequest, tried: list[VariantTry]) -> Evolved:
    last = tried[-1]
    if last.promoted:
        return Evolved(wish.tool, True, last.reason, last.version, last.improvement, tuple(tried))
    return given_up(wish, tried, last.reason, exhausted=last.failure == Failure.BUDGET)


def remember_promotion(runtime: Runtime, run: Run, wish: EvolveRequest, evolved: Evolved) -> None:
    """Remember a promotion as the fix of what it was asked for. A simulated run teaches nothing."""
    if not evolved.promoted or run.simulated:
        return
    try:
        with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
            remember_fix(
                memory,
                run_id=run.id,
                sentence=f"make the tool {wish.tool} better",
                step=wish.tool,
                problem=wish.why or "it was to be better",
                fix=f"version {evolved.version}: {evolved.why}",
            )
    except MemoryFault as fault:
        # The promotion stands; what is lost is advice for the next one.
        _log.warning("a promotion is not remembered", run_id=run.id, error=str(fault))


async def evolve(job: JobContext, tell: Announce = announce) -> object:
    """The handler of `workflow.evolve`. That nothing better was found is a result; that no engine could try is not."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    wanted = {key: value for key, value in run.spec.items() if value is not None}
    wish = EvolveRequest(**wanted)
    evolved = await evolve_one(job, run, wish, tell=tell)
    result = evolved.data()
    with job.write() as tx:
        if evolved.judged:
            complete_run(tx, run.id, result)
        else:
            change_run(tx, run.id, RunStatus.FAILED, reason=evolved.why, result=result)
    await asyncio.to_thread(remember_promotion, job.runtime, run, wish, evolved)
    return result
