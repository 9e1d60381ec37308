"""Asking an engine what the files of a repository do not tell."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ratchet.engines import Engine, Failure, Request, Session, SessionFailed
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.engines.run import Keeping, run_session
from ratchet.engines.transcript import account_of, write_now
from ratchet.kernel import LedgerError, Misuse, Outcome, RatchetError, StepStatus, Superseded
from ratchet.ledger import Transaction
from ratchet.projects.discovery.facts import Facts
from ratchet.projects.discovery.looking import discover_files
from ratchet.projects.discovery.question import RULES, SCHEMA, make_prompt, merged
from ratchet.runtime import JobContext
from ratchet.runtime.attempts import OpenAttempt, take_attempt

STEP = "discovery"
_ANSWERED = "answered"


class Known(Protocol):
    """What must be known of a project to ask about it."""

    @property
    def git_url(self) -> str | None: ...

    @property
    def default_models(self) -> Mapping[str, Any] | None: ...


async def discover_project(job: JobContext, project: Known, tree: Path) -> Facts:
    """What the files tell, and what `projects.discovery` answers where they do not.

    The session is the step `discovery` of the job's run: it is paid for once, whatever dies. An engine that cannot be
    asked or gives no answer is no failure of the project; the notes of the facts say so.
    """
    facts = await asyncio.to_thread(discover_files, tree, origin=project.git_url)
    name = job.runtime.settings.projects.discovery
    if name is None or facts.of_kind("test"):
        return facts
    model = (project.default_models or {}).get("discovery") or job.runtime.settings.protocols.models.discovery
    try:
        engine = _opened(job, name)
        answer = await _asked(job, engine, model if isinstance(model, str) else None, tree, facts)
    except (Superseded, LedgerError):
        raise
    except RatchetError as error:
        told = f" ({error.hint})" if error.hint else ""
        return replace(facts, notes=(*facts.notes, f"the engine {name} did not tell more: {error}{told}"))
    return merged(facts, answer)


def _opened(job: JobContext, name: str) -> Engine:
    engine = open_engine(name, Surroundings(job.runtime.settings, job.runtime.home, os.environ))
    if not engine.capabilities.structured_output:
        raise Misuse("it cannot answer by a schema", hint="name another engine in `projects.discovery`")
    return engine


async def _asked(
    job: JobContext, engine: Engine, model: str | None, tree: Path, facts: Facts
) -> Mapping[str, Any]:
    """The answer of the first attempt that had one. Each call makes one more attempt at most."""
    for nth in itertools.count(1):
        taken = take_attempt(job, STEP, nth=nth, spec={"engine": engine.name})
        if isinstance(taken, OpenAttempt):
            return await _attempted(taken, engine, model, tree, facts)
        if taken["answer"] is not None:
            found: Mapping[str, Any] = taken["answer"]
            return found
    raise AssertionError("counting never ends")


async def _attempted(
    opened: OpenAttempt, engine: Engine, model: str | None, tree: Path, facts: Facts
) -> Mapping[str, Any]:
    try:
        if _ANSWERED not in opened.finished:
            await _hold_session(opened, engine, model, tree, facts)
        answer = _usable(opened, opened.finished[_ANSWERED], engine.name)
    except (Superseded, LedgerError):
        raise
    except Exception as error:
        with opened.job.write() as tx:
            opened.end(tx, Outcome.ERROR, str(error), {"answer": None}, step=StepStatus.FAILED)
        raise
    with opened.job.write() as tx:
        reason = "the engine answered"
        opened.end(tx, Outcome.PASSED, reason, {"answer": answer}, step=StepStatus.COMPLETED)
    return answer


async def _hold_session(
    opened: OpenAttempt, engine: Engine, model: str | None, tree: Path, facts: Facts
) -> None:
    """One session. It works in an empty directory that is thrown away, and sees the repository without writing it."""

    async def take(_: Session) -> None:
        """The answer is all there is."""

    def record(tx: Transaction, _number: int, session: Session, _: None) -> None:
        opened.finish(tx, _ANSWERED, {"output": session.output, "simulated": session.simulated})
        opened.move_step(tx, StepStatus.NEEDS_QA)

    await run_session(
        account_of(opened.job, opened.spender, engine.name, model),
        write_now(opened.job),
        engine,
        _request(opened, engine, model, tree, facts),
        Keeping(role=STEP, tries=opened.job.runtime.settings.engines.tries),
        take=take,
        record=record,
    )


@contextlib.asynccontextmanager
async def _request(
    opened: OpenAttempt, engine: Engine, model: str | None, tree: Path, facts: Facts
) -> AsyncIterator[Request]:
    has_files = engine.capabilities.edits_files
    with tempfile.TemporaryDirectory(prefix="ratchet-discovery-") as empty:
        yield Request(
            prompt=make_prompt(tree, facts, has_files=has_files),
            system=RULES,
            workspace=Path(empty) if has_files else None,
            readable=(tree,) if has_files else (),
            model=model,
            output_schema=SCHEMA,
            limits=opened.limits,
            deadline_seconds=opened.job.runtime.settings.projects.discovery_seconds,
        )


def _usable(opened: OpenAttempt, said: Mapping[str, Any], engine: str) -> Mapping[str, Any]:
    """The answer of a session. Raises `SessionFailed` for one that only repeats another."""
    if said["simulated"] and not opened.run.simulated:
        reason = "a recording tells nothing in a run that is no simulation"
        raise SessionFailed(Failure.BAD_OUTPUT, reason, session=Session(engine))
    answer: Mapping[str, Any] = said["output"]
    return answer
