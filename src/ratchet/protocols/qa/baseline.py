"""The baseline: the checks on the untouched base, before anything is spent on a change of it.

A check that cannot run there could decide nothing about a change, so the protocol is blocked with what it printed. One
that runs and fails is remembered: what is red before the change is shown, and not blamed on the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.judges import Candidate
from ratchet.judges.judge import Deadline
from ratchet.kernel import fingerprint
from ratchet.ledger import EventFilter
from ratchet.ledger.events import Event, latest
from ratchet.projects.discovery import read_facts
from ratchet.projects.environments import Environment, missing_packages
from ratchet.protocols.qa.checks import CHECKED, CheckRun, environment_of, run_check
from ratchet.protocols.qa.contract import PlannedCheck, UnknownCheck, plan_checks, table
from ratchet.protocols.stream import ProtocolBlocked, Stream

_MOST_NAMES = 2000
_LOOKED_AT = 20
_SHOWN = 5


async def check_baseline(stream: Stream, commit: str) -> None:
    """Run the checks on `commit`, unless that was done. Raises `ProtocolBlocked` when one cannot run there."""
    if not stream.job.runtime.settings.protocols.baseline:
        return
    repository = stream.clone.repository
    try:
        plan = await asyncio.to_thread(plan_checks, repository, commit, commit, table(stream.project.facts))
    except UnknownCheck:
        # The judge says so, with what to do.
        return
    environment = await environment_of(stream, commit) if plan.checks else None
    key = fingerprint(
        "baseline 1",
        commit=commit,
        checks=[[each.name, each.argv] for each in plan.checks],
        environment=None if environment is None else environment.directory.name,
    )
    if await asyncio.to_thread(_remembered, stream, key):
        return
    ran: list[CheckRun] = []
    if plan.checks:
        with stream.job.write() as tx:
            names = ", ".join(each.name for each in plan.checks)
            stream.event(tx, "baseline_started", f"checking the untouched base {commit[:12]}: {names}")
        ran = await _run(stream, commit, plan.checks, environment)
    await asyncio.to_thread(_record, stream, commit, key, ran)
    broken = [each for each in ran if _does_not_work(each)]
    if broken:
        number = stream.project.id
        wanted = read_facts(table(stream.project.facts)).system_packages
        lacking = await asyncio.to_thread(missing_packages, wanted)
        raise ProtocolBlocked(
            "the checks cannot decide about a change, since they do not work on the untouched base.\n"
            + "\n".join(each.summary for each in broken),
            event="baseline_failed",
            hint=("" if lacking is None else f"{lacking}; ")
            + f"`ratchet project setup {number}` shows how the project is set up and --edit changes it;"
            f" `ratchet project checks {number}` changes what is checked; then resume",
        )


async def _run(
    stream: Stream, commit: str, checks: Sequence[PlannedCheck], environment: Environment | None
) -> list[CheckRun]:
    workspace = await asyncio.to_thread(stream.clone.repository.workspace, commit)
    try:
        candidate = Candidate(commit, commit, workspace.path, "nobody", run_id=stream.protocol.run_id)
        seconds = stream.job.runtime.settings.protocols.check_seconds
        return [
            CheckRun(
                check,
                await run_check(
                    check,
                    candidate,
                    workspace.path,
                    environment=environment,
                    seconds=seconds,
                    deadline=Deadline(None),
                    placement=stream.placement,
                ),
            )
            for check in checks
        ]
    finally:
        await asyncio.to_thread(workspace.discard)


def _record(stream: Stream, commit: str, key: str, ran: Sequence[CheckRun]) -> None:
    red = {each.check.name: _names(each) for each in ran if not each.passed}
    results = [
        {
            "name": each.check.name,
            "outcome": str(each.judged.verdict.outcome),
            "reason": each.judged.verdict.reason,
            "output": "" if each.passed else each.output,
        }
        for each in ran
    ]
    data: dict[str, Any] = {"commit": commit, "key": key, "red": red, "checks": results}
    # One that could not run is run again when the protocol is resumed.
    works = not any(_does_not_work(each) for each in ran)
    with stream.job.write() as tx:
        stream.event(tx, CHECKED, _summary(ran), data={**data, "works": works})


def _does_not_work(ran: CheckRun) -> bool:
    return ran.is_broken or ran.was_cut_off or ran.found_nothing_that_works


def _names(ran: CheckRun) -> list[str] | None:
    names = ran.failed_tests
    return None if names is None or len(names) > _MOST_NAMES else sorted(names)


def _summary(ran: Sequence[CheckRun]) -> str:
    """One line: what passes, or what fails."""
    if not ran:
        return (
            "the project has no checks, so nothing tests the change; `ratchet project checks --add` adds one"
        )
    red = [each for each in ran if not each.passed]
    if not red:
        return f"the untouched base passes: {', '.join(each.check.name for each in ran)}"
    reasons = [f"{each.check.name}: {each.judged.verdict.reason}" for each in red[:_SHOWN]]
    return f"red before the change, and not blamed on it: {'; '.join(reasons)}"


def _remembered(stream: Stream, key: str) -> bool:
    """Whether it is known already, in this run or in another one of the project, whose result counts here as well."""
    with stream.job.ledger.read() as tx:
        where = EventFilter(project_id=stream.project.id, type=CHECKED)
        found = latest(tx.connection, where=where, limit=_LOOKED_AT)
    known = next((each for each in found if _is_same(each, key)), None)
    if known is None:
        return False
    if known.run_id != stream.protocol.run_id:
        data: Mapping[str, Any] = known.data
        with stream.job.write() as tx:
            stream.event(tx, CHECKED, known.message or "", data=dict(data))
    return True


def _is_same(event: Event, key: str) -> bool:
    return event.data.get("key") == key and bool(event.data.get("works"))
