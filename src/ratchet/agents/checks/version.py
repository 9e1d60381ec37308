"""The judge of an agent's version: its form, its tests, its start-up and its canary calls, one after the other."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ratchet.agents.checks.canary import (
    MAX_CALLS,
    CanaryCall,
    check_calls,
    check_offers,
    check_state_after,
    check_tools,
    read_calls,
    started,
)
from ratchet.agents.checks.evals import EvalCase, check_evals, hash_of
from ratchet.agents.checks.files import (
    BOUNDS,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FILES,
    CheckRecord,
    FilesSnapshot,
    Finding,
    NotPassed,
    read_code,
    read_state,
    take_snapshot,
)
from ratchet.agents.checks.losses import check_state_kept
from ratchet.agents.checks.own_tests import (
    OwnChecks,
    bounds_of_tests,
    check_predecessor,
    check_tests,
    tests_among,
)
from ratchet.agents.checks.replay import AskedChanges, Replay, ReplayedCall
from ratchet.agents.contract import (
    CANARY,
    METADATA,
    MIGRATE,
    README,
    REQUIRED,
    SCHEMA,
    STATE,
    TESTS,
    ToolShape,
)
from ratchet.agents.servers.environment import CannotInstall, packages_of
from ratchet.agents.state import CannotCarry, migrate
from ratchet.agents.versions import changes_since, to_json
from ratchet.config.workflow_settings import Agents
from ratchet.judges.judge import Candidate, Deadline, Judged, OutOfTime, ruled
from ratchet.judges.reports import BadReport, strict_json
from ratchet.judges.scratch import copied, described, in_thread, scratch
from ratchet.kernel import Outcome, fingerprint, shortened
from ratchet.kernel.semver import Bump, is_semver
from ratchet.ledger.agents import AgentVersion
from ratchet.observe.logs import logger

CONFTEST = "conftest.py"


@dataclass(frozen=True, slots=True)
class Form:
    """What the files say. `tests` are the tests in tests.py, with digests of their code, and `parts` what they work
    with; `None` without such a file."""

    version: str
    tests: Mapping[str, str] | None
    calls: tuple[CanaryCall, ...]
    details: dict[str, Any]
    parts: Mapping[str, str]


async def check_form(
    snapshot: FilesSnapshot, base: Path | None, settings: Agents, *, deadline: Deadline
) -> Form:
    """Raises `NotPassed` at the first file that is not as it should be.

    A state that is still in the form of the version before is migrated in `snapshot`, as it will be later.
    """
    await in_thread(lambda: _check_present(snapshot, base))
    version = read_version(snapshot.read(METADATA))
    calls = await in_thread(lambda: read_calls(snapshot.read(CANARY)) if CANARY in snapshot.files else ())
    python = [name for name in snapshot.files if name.endswith(".py")]
    read = await read_code(snapshot.directory, python, schema=SCHEMA, state=STATE, deadline=deadline)
    if MIGRATE in read.functions and "migrate" not in read.functions[MIGRATE]:
        raise NotPassed(f"{MIGRATE} defines no function migrate(state); write it, or remove the file")
    if read.misfit is not None:
        await _migrate(snapshot, base, settings, read.misfit, deadline)
    tests = tests_among(read.functions[TESTS]) if TESTS in read.functions else None
    details = {
        **described(read.finished),
        "files": len(snapshot.files),
        "bytes": snapshot.size,
        "version": version,
        "test_names": None if tests is None else list(tests),
        "canary_calls": len(calls),
    }
    # What was printed is what was read, in full.
    del details["stdout"]
    return Form(version, tests, calls, details, read.parts.get(TESTS, {}))


async def _migrate(
    snapshot: FilesSnapshot, base: Path | None, settings: Agents, misfit: str, deadline: Deadline
) -> None:
    """Replace the state by what migrate.py makes of it. Raises `NotPassed` with `misfit` if it makes nothing new."""
    directory = snapshot.directory
    try:
        state = strict_json(snapshot.read(STATE), STATE)
        migrated = await migrate(directory, state, settings, parent=base)
    except BadReport:
        raise NotPassed(misfit) from None
    except CannotCarry as error:
        raise NotPassed(f"{misfit}; {error}; {error.hint}") from None
    if migrated is state:
        raise NotPassed(misfit)
    (directory / STATE).write_text(json.dumps(migrated))
    try:
        await read_state(directory / SCHEMA, directory / STATE, deadline)
    except NotPassed as finding:
        raise NotPassed(f"{misfit}; after {MIGRATE}, {finding}") from None


def _staged(snapshot: FilesSnapshot) -> Any:
    """The state as the engine left it; one that is no JSON does not pass later on."""
    try:
        return strict_json(snapshot.read(STATE), STATE) if STATE in snapshot.files else None
    except BadReport:
        return None


def read_version(metadata: bytes) -> str:
    """The version in metadata.json. Raises `NotPassed`."""
    try:
        found = strict_json(metadata, METADATA)
    except BadReport as error:
        raise NotPassed(str(error)) from None
    if not isinstance(found, dict) or found.keys() != {"version"}:
        raise NotPassed(f'{METADATA} must be an object with the one field "version"')
    version = found["version"]
    if not isinstance(version, str) or not is_semver(version):
        raise NotPassed(
            f"{METADATA} says version {str(version)[:80]!r}; write it as three numbers, such as 1.2.0"
        )
    return version


def _check_present(snapshot: FilesSnapshot, base: Path | None) -> None:
    for name in (*REQUIRED, STATE):
        if name not in snapshot.files:
            raise NotPassed(f"{name} is missing; an agent has {', '.join((*REQUIRED, STATE))}")
    if not snapshot.read(README).strip():
        raise NotPassed(f"{README} is empty; say there what the agent is for and how to call it")
    if CONFTEST in snapshot.files:
        raise NotPassed(f"{CONFTEST} is not read; put what the tests need into {TESTS}, and remove it")
    if base is not None and (base / TESTS).is_file() and TESTS not in snapshot.files:
        raise NotPassed(f"{TESTS} is gone; a change may not delete the tests, put it back")


@dataclass(frozen=True, slots=True)
class Surface:
    """What callers of a version see: the tools of its Runner, and in `offers` its Tuner's, resources and prompts."""

    tools: tuple[ToolShape, ...] = ()
    offers: tuple[ToolShape, ...] = ()


@dataclass(frozen=True, slots=True)
class Used:
    """How an agent is used, as its user has it on record: evals, calls to be made again, and what was asked for now."""

    evals: tuple[EvalCase, ...] = ()
    calls: tuple[ReplayedCall, ...] = ()
    asked: AskedChanges = field(default_factory=AskedChanges)


NOTHING_USED = Used()


async def check_all(
    directory: Path,
    settings: Agents,
    record: CheckRecord,
    *,
    agent: str,
    base: Path | None,
    state: dict[str, Any] | None,
    used: Used,
    deadline: Deadline,
) -> Surface:
    """Make every check of what lies in `directory`, on copies; what its servers offered, which have ended by then.

    Raises `NotPassed` at the first check that the version does not pass.
    """
    async with scratch() as place:
        with record.check("files") as section:
            snapshot = await in_thread(lambda: take_snapshot(directory, place / "snapshot"))
            staged = await in_thread(lambda: _staged(snapshot))
            form = await check_form(snapshot, base, settings, deadline=deadline)
            section |= form.details
            try:
                await packages_of(snapshot.directory)
            except CannotInstall as error:
                raise NotPassed(str(error)) from error
        source = snapshot.directory

        if form.tests is not None:
            with record.check("tests") as section:
                section |= await check_tests(
                    source, list(form.tests), place, settings, agent=agent, deadline=deadline
                )

        running = await copied(source, place / "running")
        async with AsyncExitStack() as held:
            with record.check("start-up") as section:
                pair = await held.enter_async_context(started(running, settings, section, agent=agent))
                tools = {server.role: server.tools for server in (pair.runner, pair.tuner)}
                section |= await check_tools(tools, source, deadline)
                offers = await check_offers(pair, settings)
                section["offers"] = [each.name for each in offers]
            with record.check("canary") as section:
                answers: list[Any] = []
                section["answers"] = answers
                await check_calls(pair, form.calls, settings, answers)
                await check_state_after(source, running, deadline)
                section["calls"] = len(answers)

        if used.evals:
            with record.check("evals") as section:
                await check_evals(source, place / "evals", used.evals, settings, section, agent=agent)
        if base is not None and state is not None:
            with record.contract("state", "state") as section:
                section |= await check_state_kept(source, state, staged, settings, parent=base)
        if base is not None:
            own = OwnChecks(
                source, form.tests or {}, form.parts, record.sections.get("tests", {}), form.calls
            )
            await check_predecessor(
                base, own, record, state=state, place=place, settings=settings, agent=agent, deadline=deadline
            )
        if base is not None and used.calls:
            (place / "replay").mkdir()
            replay = Replay(
                base,
                source,
                state or {},
                used.calls,
                used.asked,
                place / "replay",
                settings,
                agent,
            )
            with record.contract("replay", "replay") as section:
                await replay.check(section)
        return Surface(pair.runner.tools, offers)


_log = logger(__name__)
_LONGEST = 8_000


@dataclass(frozen=True, slots=True)
class CheckedVersion:
    """The verdict on a version; if it passed, also what it offers, what of the contract it breaks, and how far its
    number must move at least."""

    judged: Judged
    surface: Surface
    findings: tuple[Finding, ...] = ()
    least: Bump = Bump.PATCH
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tools(self) -> tuple[ToolShape, ...]:
        return self.surface.tools


@dataclass(frozen=True)
class VersionJudge:
    """Passes a version of `agent` that has the right files, passes its tests, starts, and answers its canary calls.

    `base` is the directory of the version before, if there is one: its tests and canary calls bind, and the state that
    its engine was shown may not be lost. `before` is its row, with what callers could rely on. A version that breaks
    any of this passes only if a person may be asked: then `found` has the findings to `asks` about. The evals in `used`
    must be answered as they say, and calls that were made before are made again to both versions.
    """

    settings: Agents
    agent: str
    base: Path | None = None
    shown_state: Callable[[], dict[str, Any] | None] = lambda: None
    before: AgentVersion | None = None
    asks: bool = False
    used: Used = NOTHING_USED
    name: str = "version"

    @cached_property
    def hash(self) -> str:
        settings = self.settings
        return fingerprint(
            "version 8",
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
            asks=self.asks,
            evals=hash_of(self.used.evals),
            replayed=len(self.used.calls),
            may_differ=sorted(self.used.asked.tools),
        )

    async def judge(self, candidate: Candidate) -> Judged:
        checked = await check_version(
            candidate.directory,
            self.settings,
            agent=self.agent,
            base=self.base,
            state=self.shown_state(),
            before=self.before,
            asks=self.asks,
            used=self.used,
            deadline_seconds=candidate.deadline_seconds,
        )
        surface = checked.surface
        found = {
            "tools": to_json(surface.tools),
            "offers": to_json(surface.offers),
            "least": str(checked.least),
            "findings": [each.text for each in checked.findings],
            "loses_state": any(each.kind == "state" for each in checked.findings),
            "evals": hash_of(self.used.evals),
            "evidence": checked.evidence,
        }
        return replace(checked.judged, found=found)


async def check_version(
    directory: Path,
    settings: Agents,
    *,
    agent: str,
    base: Path | None = None,
    state: dict[str, Any] | None = None,
    before: AgentVersion | None = None,
    asks: bool = False,
    used: Used = NOTHING_USED,
    deadline_seconds: float | None = None,
) -> CheckedVersion:
    """Check what lies in `directory`, which is not changed. Whatever it is, there is a verdict.

    Cancelling ends all that was started.
    """
    judge = VersionJudge(settings, agent, base, asks=asks, used=used)
    record, deadline = CheckRecord(), Deadline(deadline_seconds)
    surface, least = Surface(), Bump.PATCH
    try:
        async with asyncio.timeout(deadline_seconds) as limit:
            surface = await check_all(
                directory, settings, record, agent=agent, base=base, state=state, used=used, deadline=deadline
            )
        least = _least(before, surface, record)
        outcome, reason = Outcome.PASSED, f"passed {', '.join(record.passed)}"
        if record.findings:
            found = "; ".join(each.text for each in record.findings)
            outcome = Outcome.PASSED if asks else Outcome.FAILED
            reason = f"{reason}, but needs an approval: {found}" if asks else found
    except NotPassed as finding:
        outcome, reason = Outcome.FAILED, f"{record.last}: {finding}"
    except Exception as error:  # noqa: BLE001 - whatever it is, the version was not judged
        cause = OutOfTime() if limit.expired() else error
        _log.warning("a check of a version broke down", agent=agent, check=record.last, exc_info=True)
        outcome, reason = Outcome.ERROR, f"{record.last}: {type(cause).__name__}: {cause}"
    reason = _plain(reason)
    report = record.report(judge.name, agent=agent, outcome=outcome, reason=reason)
    judged = ruled(judge, outcome, reason, report=report, measurements=record.numbers())
    return CheckedVersion(judged, surface, tuple(record.findings), least, record.evidence())


def _least(before: AgentVersion | None, surface: Surface, record: CheckRecord) -> Bump:
    """How far the number must move, by what both versions really list; what callers lose is a finding."""
    least = Bump.PATCH
    if before is not None:
        changes = changes_since(before, to_json(surface.tools), to_json(surface.offers))
        least = changes.least
        lost = [f"{name} is gone" for name in changes.removed]
        lost += [f"{name} takes or answers something else" for name in changes.changed]
        if lost:
            record.findings.append(Finding("tools", f"callers: {', '.join(lost)}"))
    if record.findings:
        least = max(least, Bump.MINOR)
    return Bump.MAJOR if any(each.kind == "state" for each in record.findings) else least


def _plain(text: str) -> str:
    """`text` as every database and terminal can take it."""
    kept = "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text
    )
    return shortened(kept, _LONGEST)
