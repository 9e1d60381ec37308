"""One run of the Architect: an agent is made, or told what to do better.

Every stage ends with a checkpoint in the ledger or with something on disk that is found again, so a process that is
started again goes on behind it. Nothing that serves is touched before the very end, and that end is one transaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ratchet.agents.architect import message_of
from ratchet.agents.carrying import CannotCarry
from ratchet.agents.changing.applying import apply_state
from ratchet.agents.changing.ending import Ended, block_run, end_attempt, end_run, remembered
from ratchet.agents.changing.proposal import PROPOSED, Proposed, hold_session, proposed_of
from ratchet.agents.changing.publishing import NewVersion, Rejected, check, place_version
from ratchet.agents.changing.staging import set_aside
from ratchet.agents.changing.sweeping import sweep
from ratchet.agents.changing.taking import Decision
from ratchet.agents.changing.telling import earlier_reasons
from ratchet.agents.changing.work import Opener, Tell, Work, announce, surroundings
from ratchet.agents.place import place_of
from ratchet.engines import Failure, SessionFailed
from ratchet.engines.registry import open_engine
from ratchet.kernel import LedgerError, Misuse, Outcome, Superseded, with_hint
from ratchet.ledger import Run, Transaction
from ratchet.ledger.agents import Agent, AgentVersion, get_agent, get_version
from ratchet.ledger.runs import list_steps
from ratchet.runtime import JobContext, enter_run
from ratchet.runtime.attempts import OpenAttempt, take_attempt
from ratchet.workspaces import Repository
from ratchet.workspaces.removal import remove_tree

STEP = "change"


async def change_agent(job: JobContext, opener: Opener = open_engine, tell: Tell = announce) -> Any:
    """Make a change of an agent in as many tries as the settings allow, each told why the one before failed."""
    with _work(job, opener, tell) as work:
        tries = 0
        for nth in itertools.count(1):
            ended, is_new = await _attempt(work, nth)
            if ended.is_permanent and not is_new:
                # A person has changed something since, and resumed the run.
                continue
            tries += 1
            if ended.outcome is Outcome.PASSED or ended.is_hopeless or tries >= work.settings.tries:
                break
        if ended.is_permanent:
            return block_run(work, ended)
        return end_run(work, ended)


@contextmanager
def _work(job: JobContext, opener: Opener, tell: Tell) -> Iterator[Work]:
    """The agent, in the hands of this process alone."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    place = place_of(job.runtime.home, run.spec["agent"])
    engine = opener(run.spec.get("engine") or job.runtime.settings.agents.engine, surroundings(job))
    message = message_of(job.runtime, run.spec)
    if run.spec["action"] != "create" and not place.repository.is_dir():
        raise Misuse(
            f"the agent {place.name} does not lie in {job.runtime.home}",
            hint="let a worker of the home where it was created carry its runs",
        )
    with place.held():
        with job.ledger.read() as tx:
            agent = _agent(tx, run)
            base = _base(tx, run, agent)
        sweep(place)
        repository = _repository(place.repository)
        try:
            yield Work(job, run, agent, base, place, repository, engine, message, tell)
        finally:
            repository.close()


def _agent(tx: Transaction, run: Run) -> Agent:
    """The agent that was meant: another one may have taken its name while the run waited."""
    agent = get_agent(tx, run.spec["agent"])
    if agent.id != run.spec["agent_id"]:
        raise Misuse(f"the agent {agent.name} that this was about is deleted", hint="tell the new one")
    return agent


def _base(tx: Transaction, run: Run, agent: Agent) -> AgentVersion | None:
    """What is changed: what the first try began with, so that no later one changes something else."""
    if run.spec["action"] == "create":
        return None
    begun = [step.spec["base"] for step in list_steps(tx, run.id)]
    [commit] = begun or [run.spec.get("version") or agent.current]
    return get_version(tx, agent.id, commit)


async def _attempt(work: Work, nth: int) -> tuple[Ended, bool]:
    """What a try came to, and whether it was made just now."""
    spec = {"base": work.parent, "engine": work.engine.name}
    opened = take_attempt(work.job, STEP, nth=nth, spec=spec)
    if not isinstance(opened, OpenAttempt):
        return remembered(opened), False
    return await _try(work, opened), True


async def _try(work: Work, opened: OpenAttempt) -> Ended:
    """One try: session, checks, and what comes of them. What a try did not get through is set aside."""
    try:
        if PROPOSED not in opened.finished:
            work.passed("session")
            await hold_session(work, opened, earlier_reasons(work))
        return await _settle(work, opened, proposed_of(opened))
    except SessionFailed as failed:
        return _failed(work, opened, Outcome.ERROR, with_hint(failed), failure=failed.failure)
    except CannotCarry as problem:
        return _failed(work, opened, Outcome.FAILED, with_hint(problem))
    except Rejected as rejected:
        verdict = rejected.checked.judged.verdict
        return _failed(work, opened, verdict.outcome, verdict.reason, rejected=rejected)
    except (Superseded, LedgerError):
        raise
    except Exception as error:
        _failed(work, opened, Outcome.ERROR, f"{type(error).__name__}: {error}")
        raise


async def _settle(work: Work, opened: OpenAttempt, proposed: Proposed) -> Ended:
    if proposed.simulated and not work.run.simulated:
        reason = "a recording changes no agent in a run that is no simulation"
        return _failed(work, opened, Outcome.ERROR, reason)
    made: NewVersion | None = None
    match proposed.decision:
        case Decision.STATE:
            apply_state(work, proposed)
            work.passed("state changed")
        case Decision.CODE:
            made = await check(work, opened, proposed)
            await place_version(work, proposed, made)
    remove_tree(work.place.staging(work.parent))
    ended = end_attempt(work, opened, proposed, made)
    work.passed("recorded")
    return ended


def _failed(
    work: Work,
    opened: OpenAttempt,
    outcome: Outcome,
    reason: str,
    *,
    rejected: Rejected | None = None,
    failure: Failure | None = None,
) -> Ended:
    if failure is Failure.MISSING:
        # Nobody was there who could have made anything.
        remove_tree(work.place.staging(work.parent))
    kept = set_aside(work, opened.id)
    return end_attempt(
        work,
        opened,
        None,
        None,
        outcome=outcome,
        reason=reason,
        kept=kept,
        rejected=rejected,
        failure=failure,
    )


def _repository(path: Path) -> Repository:
    return Repository.open(path) if path.exists() else Repository.create(path)
