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
from ratchet.agents.changing.ending import Ended, block_run, end_run
from ratchet.agents.changing.sweeping import sweep
from ratchet.agents.changing.telling import earlier_reasons
from ratchet.agents.changing.trunk import AgentTrunk
from ratchet.agents.changing.work import Opener, Tell, Work, announce, surroundings
from ratchet.agents.checks import VersionJudge
from ratchet.agents.contract import LOGS
from ratchet.agents.place import place_of
from ratchet.agents.prompts import CREATED, DECIDED, asked, contract
from ratchet.engines import Request
from ratchet.engines.registry import open_engine
from ratchet.kernel import Misuse, Outcome
from ratchet.ledger import Run, Transaction
from ratchet.ledger.agents import Agent, AgentVersion, get_agent, get_version
from ratchet.ledger.runs import list_steps
from ratchet.loop import Attempted, Plan, attempt
from ratchet.runtime import JobContext, enter_run
from ratchet.runtime.attempts import ended_attempt
from ratchet.workspaces import Repository

STEP = "change"


async def change_agent(job: JobContext, opener: Opener = open_engine, tell: Tell = announce) -> Any:
    """Make a change of an agent in as many tries as the settings allow, each told why the one before failed."""
    with _work(job, opener, tell) as work:
        tries = 0
        for nth in itertools.count(1):
            known = ended_attempt(job, STEP, nth)
            if known is not None and Ended.of(Attempted.of(known)).is_permanent:
                # A person has changed something since, and resumed the run.
                continue
            ended = Ended.of(await attempt(job, STEP, _plan(work), nth=nth))
            tries += 1
            if known is None and ended.outcome is Outcome.PASSED:
                work.passed("recorded")
            if ended.outcome is Outcome.PASSED or ended.is_hopeless or tries >= work.settings.tries:
                break
        if ended.is_permanent:
            return block_run(work, ended)
        return end_run(work, ended)


def _plan(work: Work) -> Plan:
    """The next try: the Architect changes a copy, and the version that it makes must pass its checks."""
    schema = CREATED if work.base is None else DECIDED
    base = None if work.parent is None else work.place.version(work.parent)
    return Plan(
        trunk=AgentTrunk(work),
        engine=work.engine,
        request=Request(
            system=contract(),
            prompt=asked(
                work.spec["action"],
                work.agent.description,
                work.message,
                work.spec,
                earlier_reasons(work),
                work.settings,
            ),
            incidental=(LOGS,),
            model=work.spec.get("model"),
            output_schema=schema if work.engine.capabilities.structured_output else None,
            deadline_seconds=work.settings.session_seconds,
        ),
        judge=VersionJudge(work.settings, work.agent.name, base),
        spec={"base": work.parent, "engine": work.engine.name},
    )


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


def _repository(path: Path) -> Repository:
    return Repository.open(path) if path.exists() else Repository.create(path)
