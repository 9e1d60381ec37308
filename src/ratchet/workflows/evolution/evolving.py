"""One tool, rewritten: try after try, until one is better or none is left.

Every stage is found again in the ledger. A process that takes over pays for no session twice and measures nothing
anew that has a verdict; and a promotion is one transaction, so it is there or it is not.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ratchet.engines import Failure
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.kernel import BudgetExceeded, Conflict, NotFound
from ratchet.ledger.runs import Run
from ratchet.ledger.tools import VersionRow, get_tool
from ratchet.loop import attempt
from ratchet.runtime import JobContext, run_step
from ratchet.tools.definition import Tool
from ratchet.workflows.evolution.cases import read_cases, write_cases
from ratchet.workflows.evolution.parts import parts_of
from ratchet.workflows.evolution.planning import Work, plan_try
from ratchet.workflows.evolution.subject import choose_subject, remembered_subject
from ratchet.workflows.evolution.taking import Tried, settle
from ratchet.workflows.evolution.wish import Evolved, Wish, given_up
from ratchet.workspaces import Repository

Tell = Callable[[JobContext, str], None]
"""Is told how far a run has come."""


def announce(job: JobContext, stage: str) -> None:
    """An event for whoever watches."""
    with job.write() as tx:
        tx.event("evolution.stage", message=stage, run_id=job.run_id)


async def evolve_one(
    job: JobContext,
    run: Run,
    wish: Wish,
    *,
    tell: Tell = announce,
    seconds_left: Callable[[], float] = lambda: math.inf,
) -> Evolved:
    """Ask for variants of a tool until one is promoted, or as long as money and time last."""
    settings = job.runtime.settings.workflows.evolution
    surroundings = Surroundings(job.runtime.settings, job.runtime.home, os.environ)
    engine = open_engine(wish.engine or settings.engine, surroundings)
    begun = await run_step(job, f"{wish.step}begin", lambda _: _begin(job, wish))
    with job.ledger.read() as tx:
        subject = remembered_subject(tx, begun, read_cases(job.ledger.artifacts.read(begun["cases"])))
    tried: list[Tried] = []
    with _repository(job, subject.row.id) as repository:
        work = Work(job, run, wish, subject, repository, begun["base"], engine, seconds_left)
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
            tell(job, f"{wish.tool}: settled")
            passed = ended.verdict is not None and ended.verdict.passed
            # One that passed and was not taken met something that stands in the way of the next one too.
            if passed or (ended.failure is not None and Failure(ended.failure).is_hopeless):
                break
    return _summed_up(wish, tried)


async def _begin(job: JobContext, wish: Wish) -> dict[str, Any]:
    """Fix what is rewritten and what it is judged by, for all tries and for whoever goes on with them."""
    settings = job.runtime.settings.workflows.evolution
    with job.ledger.read() as tx:
        tool = get_tool(tx, wish.tool, folder=wish.folder)
        subject = choose_subject(tx, tool, cases=settings.cases, low=settings.low)
    with _repository(job, tool.id) as repository:
        base = _base(repository, subject.incumbent, subject.tool)
    with job.write() as tx:
        kept = job.ledger.artifacts.put(
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
    }


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


def _summed_up(wish: Wish, tried: list[Tried]) -> Evolved:
    last = tried[-1]
    if last.promoted:
        return Evolved(wish.tool, True, last.reason, last.version, last.improvement, tuple(tried))
    return given_up(wish, tried, last.reason, exhausted=last.failure == Failure.BUDGET)
