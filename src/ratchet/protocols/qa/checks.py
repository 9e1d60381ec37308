"""The gate that runs a repository's own checks, as they were before the change."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ratchet.judges import Candidate, CommandJudge, Judged, hear
from ratchet.judges.deadline import Deadline, OutOfTime
from ratchet.judges.endings import NOT_RUN
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.scratch import copied, in_thread, scratch
from ratchet.kernel import Outcome
from ratchet.protocols.qa.check_plan import Check, CheckPlan, UnknownCheck, plan_checks
from ratchet.protocols.qa.findings import Finding, Severity, ruled_by
from ratchet.protocols.qa.restoring import restore
from ratchet.sandbox import Bounds, Policy
from ratchet.workspaces import Repository

_GIB = 1024 * 1024 * 1024
_TAIL = 6000
_PLACES = "/usr/local/bin:/usr/bin:/bin"
_PYTEST = re.compile(r"(?:.*/)?py\.?test[\d.]*")
_RUNNING = ("-m", "run", "exec", "--")
# What Python itself says when it is to run a module that it does not have.
_NO_MODULE = re.compile(r"\S*python[\d.]*: No module named \S+\s*\Z")
_INSTALL = (
    "a check runs without the network and sees only the system's programs and the Python that runs Ratchet: install"
    " what it needs there, or change the project's checks"
)


@dataclass(frozen=True, slots=True)
class _Ran:
    """A check, and what it said: of the change, and of the change with the base's configuration."""

    check: Check
    judged: Judged
    unsteered: Judged | None = None

    @property
    def is_missing(self) -> bool:
        """Whether it could not be run at all, rather than that it did not pass."""
        if self.judged.reports:
            said = _said(self.judged)
            return said["exit_code"] in NOT_RUN or bool(_NO_MODULE.match(said["stderr"]))
        return not self.judged.verdict.passed and self.judged.verdict.reason != str(OutOfTime())


@dataclass(frozen=True, kw_only=True)
class CheckGate:
    """Passes a change that passes every check of the repository. A check that cannot be run is an error.

    Scripts are the base's, whatever the change made of them. Where it also changes configuration that steers checks,
    they are run once more with the base's: what passes only with its own is told to the reviewer, and does not pass
    where there is none who is not the author (`strict`).
    """

    repository: Repository
    base: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 1800.0
    strict: bool = False
    name: str = "checks"

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "checks 1",
            base=self.base,
            checks=self.facts.get("checks"),
            seconds=self.seconds,
            strict=self.strict,
            policy=_policy(),
        )

    async def judge(self, candidate: Candidate) -> Judged:
        deadline = Deadline(candidate.deadline_seconds)
        try:
            plan = await in_thread(
                lambda: plan_checks(self.repository, self.base, candidate.commit, self.facts)
            )
        except UnknownCheck as error:
            return ruled_by(self, [], passed="", error=f"{error}; change the project's checks")
        if not plan.checks:
            none = Finding("no-checks", "the repository has no checks", severity=Severity.NOTE)
            return self._ruled(plan, [], [none])
        async with scratch() as place:
            own = await self._tree(candidate, plan, place, steered=True)
            other = await self._tree(candidate, plan, place, steered=False) if plan.configuration else None
            ran = [await self._run(check, candidate, own, other, deadline) for check in plan.checks]
        return self._ruled(plan, ran, _unsteered(plan, ran))

    async def _tree(self, candidate: Candidate, plan: CheckPlan, place: Path, *, steered: bool) -> Path:
        """The candidate's files with the base's scripts, and unless it is steered by its own also with the base's
        configuration."""
        undone = plan.scripts if steered else (*plan.scripts, *plan.configuration)
        if not undone:
            return candidate.directory
        directory = await copied(candidate.directory, place / ("steered" if steered else "unsteered"))
        await in_thread(lambda: restore(self.repository, self.base, undone, directory))
        return directory

    async def _run(
        self, check: Check, candidate: Candidate, own: Path, other: Path | None, deadline: Deadline
    ) -> _Ran:
        command = _command(check, self.seconds)
        judged = await hear(command, replace(candidate, directory=own, deadline_seconds=deadline.left))
        if other is None or not judged.verdict.passed:
            return _Ran(check, judged)
        shown = replace(candidate, directory=other, deadline_seconds=deadline.left)
        return _Ran(check, judged, await hear(command, shown))

    def _ruled(self, plan: CheckPlan, ran: Sequence[_Ran], more: Sequence[Finding]) -> Judged:
        found = [*plan.findings, *more]
        if self.strict:
            found = [_stricter(each) for each in found]
        found += [_failed(each) for each in ran if not each.judged.verdict.passed]
        missing = [each for each in ran if each.is_missing]
        broken = [each for each in ran if each.is_missing or each.judged.verdict.outcome is Outcome.ERROR]
        told = [f"{each.check.name} could not decide: {each.judged.verdict.reason}" for each in broken]
        told += [_INSTALL] if missing else []
        passed = (
            f"passed: {', '.join(each.check.name for each in ran)}" if ran else "there are no checks to run"
        )
        return ruled_by(
            self,
            found,
            passed=passed,
            error="; ".join(told) if broken else None,
            measurements={"checks": float(len(ran)), "missing": float(len(missing))},
            more={"outputs": {each.check.name: _output(each.judged) for each in ran if each.judged.reports}},
            reports=tuple(report for each in ran for report in each.judged.reports),
        )


def _command(check: Check, seconds: float) -> CommandJudge:
    """The check as a judge. A test run by pytest must also leave its report: an exit code alone is easily faked."""
    argv, junit = check.argv, None
    if _runs_pytest(argv):
        argv, junit = (*argv, "--junitxml={reports}/junit.xml"), "junit.xml"
    bounds = Bounds(wall_seconds=seconds, memory_bytes=4 * _GIB, processes=512, output_bytes=16 * 1024 * 1024)
    name = re.sub(r"[^\w.-]", "-", f"check-{check.name}")
    return CommandJudge(name=name, argv=argv, junit=junit, bounds=bounds, policy=_policy())


def _runs_pytest(argv: Sequence[str]) -> bool:
    """Whether it is the program, or what another one is told to run: `python -m pytest`, `uv run pytest`."""
    if _PYTEST.fullmatch(argv[0]):
        return True
    return any(first in _RUNNING and _PYTEST.fullmatch(then) for first, then in itertools.pairwise(argv))


def _policy() -> Policy:
    own = Path(sys.executable).parent
    return Policy(environment={"PATH": f"{_PLACES}:{own}", "CI": "true"})


def _unsteered(plan: CheckPlan, ran: Sequence[_Ran]) -> list[Finding]:
    """What the reviewer is told of changed configuration."""
    needing = [each.check.name for each in ran if each.unsteered and not each.unsteered.verdict.passed]
    severity, told = Severity.MINOR, ""
    if needing:
        severity, told = Severity.MAJOR, f"; {', '.join(needing)} passes only with the change's own"
    elif all(each.unsteered for each in ran):
        told = "; they pass without that as well"
    return [
        Finding(
            "check-configuration",
            f"steers checks and was {change.status}{told}",
            change.path,
            severity=severity,
        )
        for change in plan.configuration
    ]


def _stricter(finding: Finding) -> Finding:
    return replace(finding, severity=Severity.BLOCKER) if finding.severity is Severity.MAJOR else finding


def _failed(ran: _Ran) -> Finding:
    return Finding(f"check.{ran.check.name}", f"{ran.check.name}: {ran.judged.verdict.reason}")


def _output(judged: Judged) -> str:
    said = _said(judged)
    return f"{said['stdout']}\n{said['stderr']}".strip()[-_TAIL:]


def _said(judged: Judged) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(judged.reports[0].content)
    return said
