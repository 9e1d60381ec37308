"""One run of the Architect: an agent is created or changed, with the engine's prompt for each try.

Every stage ends with a checkpoint in the ledger or with something on disk that is found again, so a process that is
started again resumes behind it. Nothing that serves is touched before the very end, and that end is one transaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ratchet.agents.approval import NEVER, ApprovalPending, block_until_decided, mode_of
from ratchet.agents.architect import message_of
from ratchet.agents.checks import VersionJudge
from ratchet.agents.contract import LOGS, MESSAGE_FILE, place_of
from ratchet.agents.jobs import RUN_KIND
from ratchet.agents.publication import AgentTrunk, used_of
from ratchet.agents.staging_area import ArchitectWork, Opener, Tell, announce, surroundings, sweep
from ratchet.config.workflow_settings import Agents
from ratchet.engines import Failure, Request
from ratchet.engines.registry import open_engine
from ratchet.kernel import Misuse, Outcome, RunStatus
from ratchet.ledger import Ledger, Run, Transaction, change_run
from ratchet.ledger.agents import (
    AgentRow,
    AgentVersion,
    get_agent,
    get_version,
    give_up_creation,
    list_versions,
)
from ratchet.ledger.runs import list_runs, list_steps
from ratchet.ledger.usage import stages_of_step
from ratchet.loop import Attempted, Plan, attempt
from ratchet.runtime import JobContext, complete_run, enter_run
from ratchet.runtime.attempts import ENDED, ended_attempt
from ratchet.workspaces import Repository
from ratchet.workspaces.packs import fetch_commits

_SUMMARY = {"type": "string", "description": "what you did and why, in a sentence or two for people"}
_REFUSED = {"type": ["string", "null"], "description": "why this cannot be done at all; null if it can"}
CREATED: Mapping[str, Any] = {
    "type": "object",
    "properties": {"summary": _SUMMARY, "refused": _REFUSED},
    "required": ["summary", "refused"],
    "additionalProperties": False,
}
DECIDED: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "enum": ["nothing", "state", "code"],
            "description": "what you changed: nothing, only state.json, or code (and perhaps state.json)",
        },
        "bump": {
            "type": "string",
            "enum": ["patch", "minor", "major"],
            "description": "for code: a repair, something new, or something that callers must adapt to",
        },
        "summary": _SUMMARY,
        "refused": _REFUSED,
    },
    "required": ["decision", "bump", "summary", "refused"],
    "additionalProperties": False,
}


@cache
def contract() -> str:
    """The rules of an agent's directory, and the library that it is written with."""
    return files("ratchet.agents").joinpath("contract.md").read_text(encoding="utf-8")


def asked(
    action: str,
    description: str,
    message: str,
    spec: Mapping[str, Any],
    earlier: tuple[str, ...],
    settings: Agents,
) -> str:
    """The prompt of one session. `earlier` are the reasons why earlier tries did not pass, oldest first."""
    short = message[: settings.prompt_chars]
    where = "" if short == message else f"\n\n(The rest is in {LOGS}/{MESSAGE_FILE}.)"
    if action == "create":
        parts = [_CREATE, f"What the agent should do:\n\n{short}{where}"]
    else:
        kind = f"severity {spec['severity']}, from {_SOURCES.get(spec['source'], spec['source'])}"
        parts = [_CHANGE, f"What the agent is for:\n\n{description}", f"Feedback ({kind}):\n\n{short}{where}"]
    if earlier:
        listed = "\n".join(f"- {reason}" for reason in earlier)
        parts.append(f"Earlier tries did not pass. Do not make the same mistake again:\n\n{listed}")
    return "\n\n".join(parts)


_SOURCES = {"person": "a person", "tuner": "the agent's own Tuner", "key": "a caller"}
_CREATE = """\
Design and write a new agent in this directory, which is empty but for .git. Write every file that the contract asks \
for, with a state.json that fits state_schema.json, and tests.py with tests that would fail if the agent were wrong. \
Run the tests before you end. Do not commit: that is done for you."""
_CHANGE = """\
This directory is a copy of a running agent, with its state (state.json) and the end of its logs (logs/). Read the \
feedback and decide what is right for the agent: nothing; a change of its state only, if a lesson or a value is \
enough; or a change of its code, with tests for what changed. Run the tests before you end. Do not commit, and leave \
the version in metadata.json alone: both are done for you."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEnd:
    """What one try came to. `promoted` says that the agent's address leads to the new version now.

    `failure` is how the session failed, if it did, and `refused_by` the person who refused what it made.
    """

    outcome: Outcome
    reason: str
    decision: str | None = None
    commit: str | None = None
    version: str | None = None
    summary: str = ""
    promoted: bool = False
    quarantine: str | None = None
    failure: str | None = None
    refused_by: str | None = None

    @classmethod
    def of(cls, attempted: Attempted) -> ChangeEnd:
        """What an attempt came to."""
        return cls(
            outcome=attempted.outcome,
            reason=attempted.reason,
            commit=attempted.commit,
            failure=None if attempted.failure is None else str(attempted.failure),
            **attempted.more,
        )

    @property
    def is_permanent(self) -> bool:
        """Whether every try would fail so until a person changes something."""
        return self.failure is not None and Failure(self.failure).is_permanent

    @property
    def is_hopeless(self) -> bool:
        """Whether another try would fail in the same way, or is not wanted."""
        if self.refused_by is not None:
            return True
        return self.failure is not None and Failure(self.failure).is_hopeless


def block_run(work: ArchitectWork, ended: ChangeEnd) -> dict[str, Any]:
    """Leave the run to a person: no session can work until something is changed. Resumed, it tries again."""
    result = asdict(ended)
    with work.job.write() as tx:
        change_run(tx, work.run.id, RunStatus.BLOCKED, reason=ended.reason, result=result)
    return result


def end_run(work: ArchitectWork, ended: ChangeEnd) -> dict[str, Any]:
    """Complete the run, or fail it with the reason of its last try."""
    result = asdict(ended)
    with work.job.write() as tx:
        if ended.outcome is Outcome.PASSED:
            complete_run(tx, work.run.id, result)
            return result
        change_run(tx, work.run.id, RunStatus.FAILED, reason=ended.reason, result=result)
        if work.base is None:
            give_up_creation(tx, work.agent.name, run_id=work.run.id, reason=ended.reason)
    return result


_MOST = 5
_LONGEST = 2000


def earlier_reasons(work: ArchitectWork) -> tuple[str, ...]:
    """Why the last tries failed, oldest first: those of this run, and of the runs since the last that succeeded."""
    found: list[str] = []
    with work.job.ledger.read() as tx:
        for step in list_steps(tx, work.run.id):
            tries = stages_of_step(tx, step.id, ENDED)
            found += (each["reason"] for each in reversed(tries) if each["outcome"] != Outcome.PASSED)
        for run in list_runs(tx, kind=RUN_KIND, name=work.agent.name, before=work.run.id, limit=_MOST):
            if run.status is RunStatus.COMPLETED or not _is_akin(work, run):
                break
            if run.status is RunStatus.FAILED and run.reason:
                found.append(run.reason)
    return tuple(reason[:_LONGEST] for reason in reversed(found[:_MOST]))


def _is_akin(work: ArchitectWork, run: Run) -> bool:
    """Another agent may have had the name. Of those, only what failed to become one teaches how to make this one."""
    if work.base is None:
        return bool(run.spec["action"] == "create")
    return bool(run.spec.get("agent_id") == work.agent.id)


STEP = "change"


async def change_agent(job: JobContext, opener: Opener = open_engine, tell: Tell = announce) -> Any:
    """Make a change of an agent in as many tries as the settings allow, each told why the one before failed."""
    with _work(job, opener, tell) as work:
        tries = 0
        for nth in itertools.count(1):
            known = ended_attempt(job, STEP, nth)
            if known is not None and ChangeEnd.of(Attempted.of(known)).is_permanent:
                # A person has changed something since, and resumed the run.
                continue
            attempted = await _attempted(work, nth)
            if attempted is None:
                return {"waiting": "for an approval"}
            ended = attempted
            tries += 1
            if known is None and ended.outcome is Outcome.PASSED:
                work.passed("recorded")
            if ended.outcome is Outcome.PASSED or ended.is_hopeless or tries >= work.settings.tries:
                break
        if ended.is_permanent:
            return block_run(work, ended)
        return end_run(work, ended)


async def _attempted(work: ArchitectWork, nth: int) -> ChangeEnd | None:
    """How a try ended; None if it waits for a person, with its run blocked."""
    while True:
        try:
            return ChangeEnd.of(await attempt(work.job, STEP, _plan(work), nth=nth))
        except ApprovalPending as pending:
            if block_until_decided(work, pending):
                return None


def _plan(work: ArchitectWork) -> Plan:
    """The next try: the Architect changes a copy, and the version that it makes must pass its checks."""
    schema = CREATED if work.base is None else DECIDED
    base = None if work.parent is None else work.place.version(work.parent)
    trunk = AgentTrunk(work)
    return Plan(
        trunk=trunk,
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
        judge=VersionJudge(
            work.settings,
            work.agent.name,
            base,
            lambda: trunk.shown_state,
            before=work.base,
            asks=mode_of(work.agent, work.job.runtime.settings) != NEVER,
            used=used_of(work),
        ),
        spec={"base": work.parent, "engine": work.engine.name},
    )


@contextmanager
def _work(job: JobContext, opener: Opener, tell: Tell) -> Iterator[ArchitectWork]:
    """The agent, in the hands of this process alone."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    place = place_of(job.runtime.home, run.spec["agent"])
    engine = opener(run.spec.get("engine") or job.runtime.settings.agents.engine, surroundings(job))
    message = message_of(job.runtime, run.spec)
    travels = job.ledger.artifacts.travels
    if run.spec["action"] != "create" and not (place.states if travels else place.repository).is_dir():
        raise Misuse(
            f"the agent {place.name} does not lie in {job.runtime.home}",
            hint="let a worker of the home where it was created work on its runs",
        )
    with place.held():
        with job.ledger.read() as tx:
            agent = _agent(tx, run)
            base = _base(tx, run, agent)
        sweep(place)
        repository = _repository(place.repository)
        try:
            if travels:
                fetch_versions(job.ledger, agent, run.id, repository)
            yield ArchitectWork(job, run, agent, base, place, repository, engine, message, tell)
        finally:
            repository.close()


def fetch_versions(ledger: Ledger, agent: AgentRow, run_id: int, repository: Repository) -> None:
    """Bring the commits of an agent's versions, and what a run has made, from where they were recorded."""
    here = set(repository.refs("refs/versions/").values())
    runs, before = [run_id], None
    # Newest first, as far back as to what is here.
    while True:
        with ledger.read() as tx:
            made = list_versions(tx, agent.id, before=before)
        absent = [each for each in made if each.commit not in here]
        runs += [each.run_id for each in absent if each.run_id is not None]
        if not absent:
            break
        before = made[-1].id
    for number in dict.fromkeys(reversed(runs)):
        fetch_commits(ledger, number, repository)


def _agent(tx: Transaction, run: Run) -> AgentRow:
    """The agent that was meant: another one may have taken its name while the run waited."""
    agent = get_agent(tx, run.spec["agent"])
    if agent.id != run.spec["agent_id"]:
        raise Misuse(f"the agent {agent.name} that this was about is deleted", hint="tell the new one")
    return agent


def _base(tx: Transaction, run: Run, agent: AgentRow) -> AgentVersion | None:
    """What is changed: what the first try began with, so that no later one changes something else."""
    if run.spec["action"] == "create":
        return None
    begun = [step.spec["base"] for step in list_steps(tx, run.id)]
    [commit] = begun or [run.spec.get("version") or agent.current]
    return get_version(tx, agent.id, commit)


def _repository(path: Path) -> Repository:
    return Repository.open(path) if path.exists() else Repository.create(path)
