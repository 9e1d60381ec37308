"""The judge of an agent's version: its form, its tests, its start-up and its canary calls, one after the other."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ratchet.agents.checks.canary import (
    MAX_CALLS,
    CanaryCall,
    check_calls,
    check_state_after,
    check_tools,
    read_calls,
    started,
)
from ratchet.agents.checks.files import (
    BOUNDS,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FILES,
    FilesSnapshot,
    NotPassed,
    read_code,
    read_state,
    take_snapshot,
)
from ratchet.agents.checks.own_tests import bounds_of_tests, check_tests, try_base_tests
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
from ratchet.agents.servers import Pair
from ratchet.agents.state import CannotCarry, migrate
from ratchet.agents.versions import to_json
from ratchet.config.workflow_settings import Agents
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.judge import Candidate, Deadline, Judged, OutOfTime, Report, ruled
from ratchet.judges.reports import BadReport, strict_json
from ratchet.judges.scratch import copied, described, in_thread, scratch
from ratchet.kernel import Outcome, RatchetError
from ratchet.kernel.semver import is_semver
from ratchet.observe.logs import logger

_NUMBERS = ("seconds", "cpu_ms", "peak_bytes", "tests", "failures", "errors", "skipped", "calls")


@dataclass(slots=True)
class CheckRecord:
    """One section for each check that was begun, in order."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)

    @contextmanager
    def check(self, name: str) -> Iterator[dict[str, Any]]:
        """A section to be filled in while the check is made. What ends the check is noted and raised again."""
        section = self.sections[name] = {"outcome": Outcome.ERROR, "reason": None}
        began = time.monotonic()
        try:
            yield section
            section["outcome"] = Outcome.PASSED
        except NotPassed as finding:
            section |= {**finding.details, "outcome": Outcome.FAILED, "reason": str(finding)}
            raise
        except BaseException as error:
            section["reason"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            section["seconds"] = round(time.monotonic() - began, 3)

    @property
    def last(self) -> str:
        """The check that was begun last."""
        return next(reversed(self.sections), "files")

    @property
    def passed(self) -> list[str]:
        return [name for name, section in self.sections.items() if section.get("outcome") is Outcome.PASSED]

    def numbers(self) -> dict[str, float]:
        """What can be measured of a version."""
        return {
            f"{name}.{key}": section[key]
            for name, section in self.sections.items()
            for key in _NUMBERS
            if isinstance(section.get(key), int | float)
        }

    def report(self, name: str, **head: Any) -> Report:
        return Report(f"{name}.json", json.dumps({**head, "checks": self.sections}).encode())


CONFTEST = "conftest.py"


@dataclass(frozen=True, slots=True)
class Form:
    """What the files say. `tests` are the names of the tests in tests.py; `None` if there is no such file."""

    version: str
    tests: tuple[str, ...] | None
    calls: tuple[CanaryCall, ...]
    details: dict[str, Any]


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
    tests = tuple(_tests(read.functions[TESTS])) if TESTS in read.functions else None
    details = {
        **described(read.finished),
        "files": len(snapshot.files),
        "bytes": snapshot.size,
        "version": version,
        "test_names": tests,
        "canary_calls": len(calls),
    }
    # What was printed is what was read, in full.
    del details["stdout"]
    return Form(version, tests, calls, details)


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


def _tests(functions: Sequence[str]) -> list[str]:
    """Those of the functions that pytest takes for tests."""
    found = []
    for name in functions:
        first, _, method = name.partition(".")
        if (first.startswith("Test") and method.startswith("test")) or (
            first.startswith("test") and not method
        ):
            found.append(name)
    return sorted(set(found))


_SPARE_SECONDS = 60.0


async def check_all(
    directory: Path,
    settings: Agents,
    record: CheckRecord,
    *,
    agent: str,
    base: Path | None,
    deadline: Deadline,
) -> Pair:
    """Make every check of what lies in `directory`, on copies; the servers that were started, which have ended by then.

    Raises `NotPassed` at the first check that the version does not pass.
    """
    async with scratch() as place:
        with record.check("files") as section:
            snapshot = await in_thread(lambda: take_snapshot(directory, place / "snapshot"))
            form = await check_form(snapshot, base, settings, deadline=deadline)
            section |= form.details
        source = snapshot.directory

        if form.tests is not None:
            with record.check("tests") as section:
                section |= await check_tests(
                    source, form.tests, place, settings, agent=agent, deadline=deadline
                )

        running = await copied(source, place / "running")
        async with AsyncExitStack() as held:
            with record.check("start-up") as section:
                pair = await held.enter_async_context(started(running, settings, section, agent=agent))
                tools = {server.role: server.tools for server in (pair.runner, pair.tuner)}
                section |= await check_tools(tools, source, deadline)
            with record.check("canary") as section:
                answers: list[Any] = []
                section["answers"] = answers
                await check_calls(pair, form.calls, settings, answers)
                await check_state_after(source, running, deadline)
                section["calls"] = len(answers)

        if base is not None:
            tried = await _try_base_tests(source, base, place, settings, agent=agent, deadline=deadline)
            record.sections |= {} if tried is None else {"base_tests": tried}
        return pair


async def _try_base_tests(
    source: Path, base: Path, place: Path, settings: Agents, *, agent: str, deadline: Deadline
) -> dict[str, Any] | None:
    """Behaviour may change on purpose, so it is only reported whether old tests still pass."""
    left = deadline.left
    if left is not None and left < settings.tests_seconds + _SPARE_SECONDS:
        return {"passed": None, "reason": "there was not enough time left to run them"}
    try:
        return await try_base_tests(source, base, place, settings, agent=agent, deadline=deadline)
    except RatchetError as error:
        return {"passed": None, "reason": str(error)}


_log = logger(__name__)
_LONGEST = 8_000


@dataclass(frozen=True, slots=True)
class CheckedVersion:
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
) -> CheckedVersion:
    """Check what lies in `directory`, which is not changed. Whatever it is, there is a verdict.

    Cancelling ends all that was started.
    """
    judge = VersionJudge(settings, agent, base)
    record, deadline = CheckRecord(), Deadline(deadline_seconds)
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
        cause = OutOfTime() if limit.expired() else error
        _log.warning("a check of a version broke down", agent=agent, check=record.last, exc_info=True)
        outcome, reason = Outcome.ERROR, f"{record.last}: {type(cause).__name__}: {cause}"
    reason = _plain(reason)
    report = record.report(judge.name, agent=agent, outcome=outcome, reason=reason)
    judged = ruled(judge, outcome, reason, report=report, measurements=record.numbers())
    return CheckedVersion(judged, tools, tuner_tools)


def _plain(text: str) -> str:
    """`text` as every database and terminal can take it."""
    kept = "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text
    )
    return kept if len(kept) <= _LONGEST else f"{kept[:_LONGEST]}…"
