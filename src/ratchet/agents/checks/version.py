"""Judging a version of an agent."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ratchet.agents.checks.canary_file import MAX_CALLS
from ratchet.agents.checks.checking import check_all
from ratchet.agents.checks.finding import NotPassed
from ratchet.agents.checks.own_tests import bounds_of_tests
from ratchet.agents.checks.reading import BOUNDS
from ratchet.agents.checks.record import Record
from ratchet.agents.checks.snapshot import MAX_BYTES, MAX_DEPTH, MAX_FILES
from ratchet.agents.contract import ToolShape
from ratchet.agents.signatures import to_json
from ratchet.config.agent_settings import Agents
from ratchet.judges.deadline import Deadline, OutOfTime
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.judge import Candidate, Judged, ruled
from ratchet.kernel import Outcome
from ratchet.observe.logs import logger

_log = logger(__name__)
_LONGEST = 8_000


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict on a version; if it passed, also the tools of its Runner and of its Tuner."""

    judged: Judged
    tools: tuple[ToolShape, ...] = ()
    tuner_tools: tuple[ToolShape, ...] = ()


@dataclass(frozen=True)
class VersionJudge:
    """Passes a version of `agent` that has the right files, passes its tests, starts, and answers its canary calls.

    `base` is the directory of the version before, if there is one: its tests may not be gone.
    """

    settings: Agents
    agent: str
    base: Path | None = None
    name: str = "version"

    @cached_property
    def hash(self) -> str:
        settings = self.settings
        return fingerprint(
            "version 1",
            python=sys.version_info[:3],
            snapshot=(MAX_FILES, MAX_BYTES, MAX_DEPTH),
            reading=BOUNDS,
            tests=bounds_of_tests(settings),
            start_seconds=settings.start_seconds,
            call_seconds=settings.call_seconds,
            most_calls=MAX_CALLS,
            network=settings.network,
            memory_mb=settings.memory_mb,
            cpus=settings.cpus,
            processes=settings.processes,
        )

    async def judge(self, candidate: Candidate) -> Judged:
        checked = await check_version(
            candidate.directory,
            self.settings,
            agent=self.agent,
            base=self.base,
            deadline_seconds=candidate.deadline_seconds,
        )
        return replace(checked.judged, found={"tools": to_json(checked.tools)})


async def check_version(
    directory: Path,
    settings: Agents,
    *,
    agent: str,
    base: Path | None = None,
    deadline_seconds: float | None = None,
) -> Checked:
    """Check what lies in `directory`, which is not changed. Whatever it is, there is a verdict.

    Cancelling ends all that was started.
    """
    judge = VersionJudge(settings, agent, base)
    record, deadline = Record(), Deadline(deadline_seconds)
    tools: tuple[ToolShape, ...] = ()
    tuner_tools: tuple[ToolShape, ...] = ()
    try:
        async with asyncio.timeout(deadline_seconds) as limit:
            pair = await check_all(directory, settings, record, agent=agent, base=base, deadline=deadline)
        tools, tuner_tools = pair.runner.tools, pair.tuner.tools
        outcome, reason = Outcome.PASSED, f"passed {', '.join(record.passed)}"
    except NotPassed as finding:
        outcome, reason = Outcome.FAILED, f"{record.last}: {finding}"
    except Exception as error:  # noqa: BLE001 - whatever it is, the version was not judged
        told = OutOfTime() if limit.expired() else error
        _log.warning("a check of a version broke down", agent=agent, check=record.last, exc_info=True)
        outcome, reason = Outcome.ERROR, f"{record.last}: {type(told).__name__}: {told}"
    reason = _plain(reason)
    report = record.report(judge.name, agent=agent, outcome=outcome, reason=reason)
    judged = ruled(judge, outcome, reason, report=report, measurements=record.numbers())
    return Checked(judged, tools, tuner_tools)


def _plain(text: str) -> str:
    """`text` as every database and terminal can take it."""
    kept = "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text
    )
    return kept if len(kept) <= _LONGEST else f"{kept[:_LONGEST]}…"
