"""Tests of agents, run by pytest in the sandbox: those of a version itself, and those that bind it.

They share a process with pytest, so code could lie to them if it was written to, and its author could as well have
written tests that assert nothing. This check holds out against shortcuts and mistakes, and notices where tests that
fail are passed. Evals and recorded calls are made from outside.

The tests and canary calls of the version before bind the next one, with the files that only its tests use. They are
read from the predecessor's own files, since a candidate that fails them could change its copies. Deleting, rewriting or
skipping one is a finding, too: it would bind nothing after this change.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.agents.checks.canary import CanaryCall, check_calls, read_calls, started
from ratchet.agents.checks.files import (
    PACKAGE,
    BrokenContract,
    CheckRecord,
    FilesSnapshot,
    NotPassed,
    Read,
    read_uses,
    take_snapshot,
)
from ratchet.agents.contract import CANARY, MIGRATE, REQUIRED, STATE, TESTS
from ratchet.agents.servers.environment import packages_of
from ratchet.config.workflow_settings import Agents
from ratchet.judges.judge import Deadline
from ratchet.judges.reports import BadReport, TestCounts, count_tests, read_report, strict_json
from ratchet.judges.scratch import (
    blame,
    copied,
    described,
    ended,
    ending_text,
    in_thread,
    last_words,
    run_confined,
)
from ratchet.kernel import Outcome, RatchetError, decoded
from ratchet.sandbox import Bounds, Finished, Policy

_PROGRAM = Path(__file__).resolve().with_name("_test_program.py")
_MIB = 1024 * 1024
# The tests themselves, and both servers, which they may start.
_ROOM = 3
_JUNIT = "junit.xml"
_MODULE = "tests"
_NOTHING_COLLECTED = 5
_SUMMARY = ("E  ", "FAILED ", "ERROR ")
_SHOWN_LINES = 20
_SHOWN_LINE = 300
# pytest cuts the lines of its summary at the width of the terminal.
_COLUMNS = "240"
_TAIL = 16 * 1024
# Files of the agent itself, which tests use as well.
_AGENT = (*REQUIRED, CANARY, MIGRATE, STATE)


@dataclass(frozen=True, slots=True)
class OwnTestsResult:
    """How a run of tests.py went. `problem` says why it does not count as passed."""

    problem: str | None
    details: dict[str, Any]


async def check_tests(
    source: Path, tests: Sequence[str], place: Path, settings: Agents, *, agent: str, deadline: Deadline
) -> dict[str, Any]:
    """Run tests.py in a copy of `source` below `place`; what the report shows of it. Raises `NotPassed`.

    `tests` are the names that are defined in it: all of them must have been run.
    """
    tested = await run_tests(source, place / "tests", settings, tests=tests, agent=agent, deadline=deadline)
    if tested.problem is not None:
        raise NotPassed(tested.problem, tested.details)
    return tested.details


def bounds_of_tests(settings: Agents) -> Bounds:
    return Bounds(
        wall_seconds=settings.tests_seconds,
        memory_bytes=_ROOM * settings.memory_mb * _MIB,
        processes=_ROOM * settings.processes,
    )


async def run_tests(
    source: Path, place: Path, settings: Agents, *, tests: Sequence[str], agent: str, deadline: Deadline
) -> OwnTestsResult:
    """Run tests.py in a copy of `source`; `place` is made for it. `tests` must all have been run."""
    reports = place / "reports"
    reports.mkdir(parents=True)
    config = place / "pytest.ini"
    config.write_text("[pytest]\n")
    directory = await copied(source, place / "agent")
    packages = await packages_of(source)
    secret, bounds = secrets.token_hex(16), bounds_of_tests(settings)
    finished = await run_confined(
        ("{python}", "-I", "-B", str(_PROGRAM), str(reports / _JUNIT), str(config)),
        cwd=directory,
        bounds=bounds,
        policy=Policy(),
        deadline=deadline,
        readable=(config, PACKAGE, *([] if packages is None else [packages])),
        writable=(directory, reports),
        # Which plugins happen to be installed must not decide.
        environment={
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "COLUMNS": _COLUMNS,
            "RATCHET_AGENT": agent,
            **({} if packages is None else {"PYTHONPATH": str(packages)}),
        },
        stdin=f"{secret}\n".encode(),
    )
    details = {**described(finished, tail=_TAIL), "tests_defined": len(tests)}
    if finished.exit_code is None and blame(finished) is Outcome.ERROR:
        raise RatchetError(f"the tests could not be run: {ending_text(finished)}")
    try:
        counts = await in_thread(lambda: _counts(finished, secret, reports, bounds))
    except BadReport as error:
        return OwnTestsResult(str(error), details)
    details |= {**counts.measurements(), "broken_tests": counts.broken}
    return OwnTestsResult(_problem(finished, counts, tests), details)


def _counts(finished: Finished, secret: str, reports: Path, bounds: Bounds) -> TestCounts:
    """What pytest reported, if it came to its end: exit code, report and what was said at the end must agree."""
    if finished.exit_code is None:
        raise BadReport(
            f"{ended(finished)}; the tests must end by themselves, within {bounds.wall_seconds:g} s,"
            f" {bounds.processes} processes and {bounds.memory_bytes} bytes of memory"
        )
    unsaid = BadReport(
        f"pytest did not come to its end ({ending_text(finished)}); "
        "tests must not end their process or write to its pipes"
    )
    try:
        said = strict_json(finished.stdout, "the end of the tests")
    except BadReport:
        raise unsaid from None
    if (
        not isinstance(said, dict)
        or said.get("secret") != secret
        or said.get("exit_code") != finished.exit_code
    ):
        raise unsaid
    if said.get("passes_anything") is not False:
        raise BadReport(
            "pytest passed a test that fails; leave it as it is, in the agent's code as in its tests"
        )
    content = read_report(reports, _JUNIT)
    if hashlib.sha256(content).hexdigest() != said.get("sha256"):
        raise BadReport(f"the report {_JUNIT} is not the one that pytest wrote; tests must leave it alone")
    counts = count_tests(content, _JUNIT)
    if said.get("failed") and not counts.failures + counts.errors:
        raise BadReport(f"{said['failed']} tests failed, but the report {_JUNIT} shows none of them")
    return counts


def _problem(finished: Finished, counts: TestCounts, tests: Sequence[str]) -> str | None:
    broken = counts.failures + counts.errors
    if finished.exit_code == _NOTHING_COLLECTED or counts.tests <= counts.skipped:
        return f"no test was run ({counts.tests} found, {counts.skipped} skipped); write functions test_…"
    if finished.exit_code != 0 or broken:
        return f"{broken} of {counts.tests} tests failed, pytest exited with {finished.exit_code}{_summary(finished)}"
    left_out = [name for name in tests if f"{_MODULE}.{name}" not in counts.names]
    if left_out:
        return f"{left_out[0]} was not run ({len(left_out)} such tests); let pytest collect all tests"
    return None


def _summary(finished: Finished) -> str:
    """The lines with which pytest says what was wrong, and where."""
    lines = decoded(finished.stderr[-_TAIL:]).splitlines()
    named = [line[:_SHOWN_LINE] for line in lines if line.startswith(_SUMMARY)] or [last_words(finished)]
    return "".join(f"\n{line}" for line in named[-_SHOWN_LINES:])


@dataclass(frozen=True, slots=True)
class OwnChecks:
    """What a candidate brings itself: its files, its tests with digests of their code, what they work with, how they
    went, and its calls."""

    source: Path
    tests: Mapping[str, str]
    parts: Mapping[str, str]
    tested: Mapping[str, Any]
    calls: Sequence[CanaryCall]


def tests_among(functions: Mapping[str, str]) -> dict[str, str]:
    """Those of the functions of a module that pytest takes for tests."""
    found = {}
    for name in sorted(functions):
        first, _, method = name.partition(".")
        if (first.startswith("Test") and method.startswith("test")) or (
            first.startswith("test") and not method
        ):
            found[name] = functions[name]
    return found


async def check_predecessor(
    base: Path,
    own: OwnChecks,
    record: CheckRecord,
    *,
    state: dict[str, Any] | None,
    place: Path,
    settings: Agents,
    agent: str,
    deadline: Deadline,
) -> None:
    """Hold the candidate to the tests and calls of the version in `base`. What it breaks are findings of `record`."""
    held_place = place / "predecessor"
    held_place.mkdir()
    if (base / TESTS).is_file():
        before = await in_thread(lambda: take_snapshot(base, held_place / "snapshot"))
        held = _HeldTests(before, own, state, held_place, settings, agent, deadline)
        changed = await in_thread(held.changed)
        # The same tests have passed already; what they skipped may still be less than before.
        if changed or own.tested.get("skipped"):
            with record.contract("predecessor's tests", "tests") as section:
                section |= await held.check(changed)
    if (base / CANARY).is_file():
        calls = read_calls(await in_thread(lambda: read_report(base, CANARY)))
        # Calls that it makes first itself have been answered as they should be.
        if tuple(own.calls[: len(calls)]) != calls:
            with record.contract("predecessor's canary", "canary") as section:
                await _check_old_calls(own, calls, held_place / "running", settings, section, agent=agent)


@dataclass(frozen=True, slots=True)
class _HeldTests:
    """The tests of the version `before`, which a candidate is held to."""

    before: FilesSnapshot
    own: OwnChecks
    state: dict[str, Any] | None
    place: Path
    settings: Agents
    agent: str
    deadline: Deadline

    def changed(self) -> frozenset[str]:
        """The files that tests may depend on, and that are not as they were."""
        return frozenset(
            name for name in self.before.files - set(_AGENT) if self._now(name) != self.before.read(name)
        )

    def _now(self, name: str) -> bytes | None:
        file = self.own.source / name
        return file.read_bytes() if file.is_file() else None

    async def check(self, changed: Collection[str]) -> dict[str, Any]:
        """Run the old tests with the new code; what the report shows of it. Raises `BrokenContract`."""
        details: dict[str, Any] = dict(self.own.tested)
        problems: list[str] = []
        if changed:
            read = await read_uses(self.before, self.deadline)
            only_tests = only_used_by_tests(read.uses)
            if TESTS in changed or not only_tests.isdisjoint(changed):
                details, problems = await self._with_old_tests(read, only_tests)
        if skipped := int(details.get("skipped", 0)):
            before = await self._skipped_before()
            if skipped > before:
                problems.append(
                    f"{skipped} of {details['tests']} tests were skipped; with the version before, {before}"
                )
        if problems:
            raise BrokenContract("; ".join(problems), details)
        return details

    async def _with_old_tests(
        self, read: Read, only_tests: Collection[str]
    ) -> tuple[dict[str, Any], list[str]]:
        mixed = await copied(self.own.source, self.place / "mixed")
        for name in (TESTS, *only_tests):
            (mixed / name).parent.mkdir(parents=True, exist_ok=True)
            (mixed / name).write_bytes(self.before.read(name))
        old, new = tests_among(read.functions[TESTS]), self.own.tests
        tested = await run_tests(
            mixed,
            self.place / "tests",
            self.settings,
            tests=list(old),
            agent=self.agent,
            deadline=self.deadline,
        )
        details = tested.details
        problems = [] if tested.problem is None else [tested.problem]
        problems += [f"{name} is gone from {TESTS}" for name in old if name not in new]
        problems += [f"{name} is rewritten" for name in old if name in new and new[name] != old[name]]
        problems += changed_parts(read.parts[TESTS], read.words[TESTS], self.own.parts)
        for name in sorted(only_tests):
            now = self._now(name)
            if now != self.before.read(name):
                problems.append(f"{name}, which the tests use, is {'gone' if now is None else 'rewritten'}")
        cases, now_cases = details.get("tests", 0), self.own.tested.get("tests", 0)
        if now_cases < cases and not problems:
            problems.append(f"{TESTS} has {now_cases} cases, and {cases} before")
        return details, problems

    async def _skipped_before(self) -> int:
        """How many tests of the version before are skipped with its own code."""
        directory = self.before.directory
        if self.state is not None:
            (directory / STATE).write_text(json.dumps(self.state))
        tested = await run_tests(
            directory,
            self.place / "tests-before",
            self.settings,
            tests=(),
            agent=self.agent,
            deadline=self.deadline,
        )
        return int(tested.details.get("skipped", 0))


def changed_parts(old: Mapping[str, str], words: Collection[str], new: Mapping[str, str]) -> list[str]:
    """What the tests in tests.py work with otherwise than before, though they are the same themselves: a helper that
    checks nothing any more, a constant, a fixture that replaces what is tested.

    `words` are the names in the old file; a new thing of such a name comes between.
    """
    found = [
        f"{name} in {TESTS} is {'rewritten' if name in new else 'gone'}"
        for name in old
        if name and new.get(name) != old[name]
    ]
    found += [f"{name} in {TESTS} is something else now" for name in new if name not in old and name in words]
    if new.get("") != old.get(""):
        found.append(f"{TESTS} does something else by itself, beside its tests")
    return found


def only_used_by_tests(uses: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The files that tests.py uses, or a file that it uses, but not the agent itself."""
    of_agent = _reached(uses, _AGENT)
    return _reached(uses, [TESTS]) - of_agent - {TESTS}


def _reached(uses: Mapping[str, Sequence[str]], begin: Sequence[str]) -> frozenset[str]:
    found, waiting = set(begin), list(begin)
    while waiting:
        more = [each for each in uses.get(waiting.pop(), ()) if each not in found and each != TESTS]
        found.update(more)
        waiting += more
    return frozenset(found)


async def _check_old_calls(
    own: OwnChecks,
    calls: Sequence[CanaryCall],
    place: Path,
    settings: Agents,
    section: dict[str, Any],
    *,
    agent: str,
) -> None:
    """Make the old calls to the new servers, on a state of their own. Raises `BrokenContract`."""
    answers: list[Any] = []
    problems = []
    async with started(await copied(own.source, place), settings, section, agent=agent) as pair:
        try:
            await check_calls(pair, calls, settings, answers)
        except NotPassed as problem:
            problems.append(str(problem))
    section |= {"answers": answers, "calls": len(answers)}
    problems += [f"{call.described()} is gone from {CANARY}" for call in calls if call not in own.calls]
    if problems:
        raise BrokenContract("; ".join(problems))
