"""The second check: the agent's own tests, run by pytest in the sandbox.

They share a process with pytest, so they could lie if they were written to, and their author could as well have
written tests that assert nothing. This check holds out against shortcuts and mistakes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.agents.checks.files import PACKAGE, NotPassed
from ratchet.agents.contract import TESTS
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
from ratchet.kernel import Outcome, RatchetError
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
    tested = await _run(source, place / "tests", settings, tests=tests, agent=agent, deadline=deadline)
    if tested.problem is not None:
        raise NotPassed(tested.problem, tested.details)
    return tested.details


async def try_base_tests(
    source: Path, base: Path, place: Path, settings: Agents, *, agent: str, deadline: Deadline
) -> dict[str, Any] | None:
    """How the tests of the version before, if they differ, go with the new code. Nothing depends on it."""
    old = await in_thread(lambda: _read_tests(base))
    if old is None or old == await in_thread(lambda: _read_tests(source)):
        return None
    mixed = await copied(source, place / "with-base-tests")
    (mixed / TESTS).write_bytes(old)
    tested = await _run(mixed, place / "base-tests", settings, tests=(), agent=agent, deadline=deadline)
    return {"passed": tested.problem is None, "reason": tested.problem, **tested.details}


def bounds_of_tests(settings: Agents) -> Bounds:
    return Bounds(
        wall_seconds=settings.tests_seconds,
        memory_bytes=_ROOM * settings.memory_mb * _MIB,
        processes=_ROOM * settings.processes,
    )


def _read_tests(directory: Path) -> bytes | None:
    try:
        return read_report(directory, TESTS)
    except BadReport:
        return None


async def _run(
    source: Path, place: Path, settings: Agents, *, tests: Sequence[str], agent: str, deadline: Deadline
) -> OwnTestsResult:
    reports = place / "reports"
    reports.mkdir(parents=True)
    config = place / "pytest.ini"
    config.write_text("[pytest]\n")
    directory = await copied(source, place / "agent")
    secret, bounds = secrets.token_hex(16), bounds_of_tests(settings)
    finished = await run_confined(
        ("{python}", "-I", "-B", str(_PROGRAM), str(reports / _JUNIT), str(config)),
        cwd=directory,
        bounds=bounds,
        policy=Policy(),
        deadline=deadline,
        readable=(config, PACKAGE),
        writable=(directory, reports),
        # Which plugins happen to be installed must not decide.
        environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": _COLUMNS, "RATCHET_AGENT": agent},
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
    lines = finished.stderr[-_TAIL:].decode("utf-8", "replace").splitlines()
    named = [line[:_SHOWN_LINE] for line in lines if line.startswith(_SUMMARY)] or [last_words(finished)]
    return "".join(f"\n{line}" for line in named[-_SHOWN_LINES:])
