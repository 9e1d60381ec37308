"""Which version serves, decided by what was measured: traffic that is split until it is clear, and watched evals.

A split is looked at five times, each time a fifth more of the wanted calls were made of both versions. Each look
compares the shares of calls that went wrong by an interval (Newcombe's, from Wilson's scores) that is wide enough for
all five together: but for a chance of 5 %, neither error is made at any of them.

- The version is stopped as soon as its share is higher beyond doubt.
- It is promoted as soon as its share is beyond doubt not higher by more than the margin.
- If neither is clear at the last look, a person is asked.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.agentkit import AgentKitError
from ratchet.agents import actions
from ratchet.agents.contract import STATE, place_of
from ratchet.agents.jobs import WATCH
from ratchet.agents.learning import keep_lesson
from ratchet.agents.stores import AgentStates
from ratchet.agents.versions import find_version
from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.agents import (
    AgentRow,
    AgentStatus,
    VersionStatus,
    get_agent,
    get_version,
    last_good,
    move_current,
)
from ratchet.ledger.production import (
    IncidentStatus,
    TrafficSplit,
    TrafficStatus,
    begin_split,
    end_split,
    list_incidents,
    note_incident,
    note_look,
    open_split,
    set_incident,
    version_calls,
)

if TYPE_CHECKING:
    from ratchet.agents.actions import Place
    from ratchet.agents.checks.evals import EvalCase
    from ratchet.config.workflow_settings import Agents
    from ratchet.runtime import JobContext, Runtime

LOOKS = 5
ALPHA = 0.05
_REACH = NormalDist().inv_cdf(1 - ALPHA / LOOKS)
_MOST_DRIFT = 200


class CallCounts(NamedTuple):
    """Calls of one version since a split began."""

    calls: int
    wrong: int

    @property
    def share(self) -> float:
        return self.wrong / self.calls if self.calls else 0.0

    def __str__(self) -> str:
        return f"{self.wrong} of {self.calls} calls went wrong"


def begin(tx: Transaction, agent: AgentRow, version: str, percent: int, settings: Agents) -> TrafficSplit:
    """Let a share of the new sessions go to a version. Raises `Conflict` for one that is current or quarantined."""
    wanted = find_version(tx, agent, version)
    if agent.status is not AgentStatus.READY or agent.current is None:
        raise Conflict(f"the agent {agent.name} is {agent.status}", hint="wait until it is ready")
    if wanted.commit == agent.current:
        raise Conflict(
            f"version {wanted.version} of {agent.name} is the current one and has all calls",
            hint=f"name another that `ratchet agent versions {agent.name}` lists",
        )
    if wanted.status is VersionStatus.QUARANTINED:
        raise Conflict(f"version {wanted.version} of {agent.name} is quarantined: {wanted.reason}")
    current, candidate = (version_calls(tx, agent.id, each) for each in (agent.current, wanted.commit))
    return begin_split(
        tx,
        agent,
        candidate=wanted.commit,
        percent=percent,
        wanted_calls=settings.traffic_calls,
        margin=settings.traffic_margin,
        base_current=current[0],
        base_current_wrong=current[1],
        base_candidate=candidate[0],
        base_candidate_wrong=candidate[1],
    )


def check_state(home: Path, agent: AgentRow, commit: str) -> None:
    """Raises `Conflict` for a version that does not work on the state of the current one: one would not learn from the
    other."""
    try:
        shared = AgentStates(place_of(home, agent.name)).resumed(commit, agent.current).shared
    except (AgentKitError, OSError) as error:
        raise Conflict(
            f"the state of version {commit[:12]} of {agent.name} cannot be read: {error}"
        ) from None
    if not shared:
        raise Conflict(
            f"version {commit[:12]} of {agent.name} works on a state of another form than the current one",
            hint=f"promote it instead: `ratchet agent promote {agent.name} {commit[:12]}` migrates the state",
        )


def stop(tx: Transaction, agent: AgentRow, by: str) -> TrafficSplit:
    """End the split of an agent. Raises `NotFound` if there is none."""
    split = open_split(tx, agent.id)
    if split is None:
        raise NotFound("split of the traffic of", agent.name)
    return end_split(tx, agent, split, TrafficStatus.STOPPED, f"stopped by {by}")


def counts_of(tx: Transaction, split: TrafficSplit) -> tuple[CallCounts, CallCounts]:
    """The calls of the current version and of the other one since the split began."""
    now = [version_calls(tx, split.agent_id, commit) for commit in (split.against, split.candidate)]
    bases = (
        (split.base_current, split.base_current_wrong),
        (split.base_candidate, split.base_candidate_wrong),
    )
    current, candidate = (
        CallCounts(max(0, calls - base), max(0, wrong - base_wrong))
        for (calls, wrong), (base, base_wrong) in zip(now, bases, strict=True)
    )
    return current, candidate


def decide(tx: Transaction, agent: AgentRow) -> TrafficSplit | None:
    """Look at the split of an agent, if it is time for a look; the split if it ended with that."""
    split = open_split(tx, agent.id)
    if split is None or split.status is not TrafficStatus.RUNNING:
        return None
    if agent.current != split.against:
        return end_split(tx, agent, split, TrafficStatus.STOPPED, "the address was moved meanwhile")
    version = get_version(tx, agent.id, split.candidate)
    if version.status is VersionStatus.QUARANTINED:
        return end_split(tx, agent, split, TrafficStatus.STOPPED, f"it is quarantined: {version.reason}")
    current, candidate = counts_of(tx, split)
    looks = min(LOOKS, min(current.calls, candidate.calls) * LOOKS // split.wanted_calls)
    if looks <= split.looks:
        return None
    status, reason = ruling(current, candidate, margin=split.margin, is_last=looks == LOOKS)
    if status is None:
        note_look(tx, split, looks)
        return None
    ended = end_split(tx, agent, split, status, reason)
    if status is TrafficStatus.PROMOTED:
        move_current(tx, agent, version.commit, expected=split.against, why="promoted", reason=reason)
        keep_lesson(tx, agent, version.run_id)
    return ended


def ruling(
    current: CallCounts, candidate: CallCounts, *, margin: float, is_last: bool
) -> tuple[TrafficStatus | None, str]:
    """What follows from the calls at one look; nothing yet, unless it is the last."""
    low, high = difference(current, candidate)
    reason = f"{candidate}, and {current} of the current version: {100 * low:+.1f} to {100 * high:+.1f} points more"
    if low > 0:
        return TrafficStatus.STOPPED, reason
    if high < margin:
        return TrafficStatus.PROMOTED, reason
    return (TrafficStatus.ASKS if is_last else None), f"{reason}; the margin is {100 * margin:g} points"


def difference(current: CallCounts, candidate: CallCounts) -> tuple[float, float]:
    """Bounds of how much higher the share of the candidate is."""
    (low, high), (low_now, high_now) = _wilson(candidate), _wilson(current)
    gap = candidate.share - current.share
    return (
        gap - math.hypot(candidate.share - low, high_now - current.share),
        gap + math.hypot(high - candidate.share, current.share - low_now),
    )


def _wilson(counts: CallCounts) -> tuple[float, float]:
    size, share, square = counts.calls, counts.share, _REACH * _REACH
    middle = (share + square / (2 * size)) / (1 + square / size)
    reach = _REACH / (1 + square / size) * math.sqrt(share * (1 - share) / size + square / (4 * size * size))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def schedule_name(agent: AgentRow) -> str:
    """Of the schedule by which the evals of an agent are run. Another agent may get its name one day."""
    return f"agent-{agent.id}-evals"


def begin_watch(
    tx: Transaction, runtime: Runtime, agent: AgentRow, when: str, *, timezone: str, rollback: bool
) -> None:
    """Run the evals of an agent by a schedule."""
    payload = {"agent": agent.name, "agent_id": agent.id, "rollback": rollback}
    runtime.put_schedule(tx, schedule_name(agent), when, WATCH, payload, timezone=timezone)


async def watch_evals(job: JobContext) -> dict[str, Any]:
    """Run the evals of an agent against the version in use; what it does not answer any more is an incident.

    With `rollback`, the address goes back to the version before if that one answers all of them.
    """
    from ratchet.agents.checks.evals import EvalCase
    from ratchet.ledger.evals import list_evals

    runtime, name = job.runtime, job.payload["agent"]

    def look() -> tuple[AgentRow, list[EvalCase], str | None]:
        with job.ledger.read() as tx:
            agent = get_agent(tx, name)
            before = last_good(tx, agent.id, other_than=agent.current)
            found = [EvalCase.of(each) for each in list_evals(tx, agent.id)]
            return agent, found, None if before is None else before.commit

    agent, cases, before = await asyncio.to_thread(look)
    if agent.id != job.payload["agent_id"] or agent.current is None:
        raise Misuse(f"the agent {name} that this was about is deleted", hint="remove the schedule")
    wrong = await _wrong(runtime, name, agent.current, cases)
    back = None
    if wrong and before is not None and job.payload.get("rollback"):
        back = before if not await _wrong(runtime, name, before, cases) else None
    kept = None if back is None else await asyncio.to_thread(_roll_back, runtime, agent, back)
    await asyncio.to_thread(_note_drift, job, agent, cases, wrong, kept)
    done = back if kept is None else None
    return {"commit": agent.current, "evals": len(cases), "failed": len(wrong), "rolled_back_to": done}


def _roll_back(runtime: Runtime, agent: AgentRow, to: str) -> str | None:
    """Go back from the version that was looked at; why not, if that needs a person."""
    with runtime.ledger.read() as tx:
        if get_agent(tx, agent.name).current != agent.current:
            return "the address was moved meanwhile"
    try:
        actions.rollback(runtime, agent.name, to, actor="agents-watch")
    except RatchetError as problem:
        return str(problem)
    return None


async def _wrong(runtime: Runtime, name: str, commit: str, cases: Sequence[EvalCase]) -> dict[int, str]:
    """Why a version does not answer which evals, each time of two: what fails once only is no drift."""
    reasons: dict[int, str] = {}
    for number in range(2):
        section: dict[str, Any] = {}
        try:
            if not cases or await evaluate(runtime, runtime.settings.agents, name, commit, cases, section):
                return {}
            failed = {each["eval"]: str(each["reason"]) for each in section["results"] if not each["passed"]}
        except Conflict as problem:
            failed = {each.id: str(problem) for each in cases}
        reasons = failed if number == 0 else {key: why for key, why in failed.items() if key in reasons}
    return reasons


async def evaluate(
    where: Place, settings: Agents, name: str, commit: str, cases: Sequence[EvalCase], section: dict[str, Any]
) -> bool:
    """Whether a version answers these, in the sandbox and on a copy of its state. Raises `Conflict` if it cannot be
    asked."""
    from ratchet.agents.checks.evals import run_evals
    from ratchet.agents.checks.files import NotPassed, take_snapshot
    from ratchet.judges.scratch import in_thread, scratch

    async with scratch() as place:
        try:
            directory = place_of(where.home, name).version(commit)
            snapshot = await in_thread(lambda: take_snapshot(directory, place / "version"))
            state = await in_thread(lambda: actions.read_state(where, name, commit))
            (snapshot.directory / STATE).write_text(json.dumps(state))
            return await run_evals(
                snapshot.directory, place / "running", cases, settings, section, agent=name
            )
        except NotPassed as problem:
            raise Conflict(f"version {commit[:12]} of {name} cannot be asked: {problem}") from None


def _note_drift(
    job: JobContext, agent: AgentRow, cases: Sequence[EvalCase], wrong: dict[int, str], kept: str | None
) -> None:
    """Make an incident of each eval that is answered otherwise, and resolve those of evals that are right again.

    `kept` says why the address did not go back, although it was to.
    """
    from ratchet.agents.call_record import fingerprint

    assert agent.current is not None
    with job.write() as tx:
        known = {each.fingerprint: each for each in list_incidents(tx, agent.id, limit=_MOST_DRIFT)}
        for case in cases:
            said = json.dumps([case.arguments, case.expect], sort_keys=True)
            mark = fingerprint(str(case.server), case.tool, "drift", said)
            before = known.get(mark)
            if case.id in wrong:
                note_incident(
                    tx,
                    agent,
                    [mark, mark],
                    at_commit=agent.current,
                    kind="drift",
                    server=str(case.server),
                    tool=case.tool,
                    message=f"{case.described()}: {wrong[case.id]}{'' if kept is None else f'; {kept}'}"[
                        :2_000
                    ],
                    arguments=dict(case.arguments),
                    expect=dict(case.expect),
                    is_whole=True,
                )
            elif before is not None and before.status is IncidentStatus.OPEN:
                set_incident(tx, agent, before.id, IncidentStatus.RESOLVED)
        data = {"agent": agent.name, "commit": agent.current, "evals": len(cases), "failed": len(wrong)}
        tx.event("agent.watched", message=f"{agent.name}: {len(wrong)} of {len(cases)} evals fail", data=data)
