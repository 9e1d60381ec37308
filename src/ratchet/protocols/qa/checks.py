"""The gate that runs a repository's own checks, as they were before the change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ratchet.judges import Candidate, Judged
from ratchet.judges.combined import ABSTAINED, NOT_COUNTED
from ratchet.judges.deadline import Deadline
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.scratch import copied, in_thread, scratch
from ratchet.kernel import Misuse
from ratchet.projects.environments import Environment, Environments, Recipe, SetupFailed
from ratchet.protocols.qa.check_plan import Check, CheckPlan, UnknownCheck, plan_checks
from ratchet.protocols.qa.check_run import Ran, plain_policy, run_check
from ratchet.protocols.qa.findings import Finding, Severity, ruled_by
from ratchet.protocols.qa.restoring import restore
from ratchet.workspaces import Repository

_NAMED = 5
_INSTALL = (
    "a check runs without the network, in the project's environment: `ratchet project setup` shows how that is made,"
    " `ratchet project checks` what is run"
)
Red = Mapping[str, Sequence[str] | None]
"""The checks that fail without the change, each with the tests that do, where it tells."""


@dataclass(frozen=True, kw_only=True)
class CheckGate:
    """Passes a change that passes every check of the repository. A check that cannot be run is an error.

    Scripts are the base's, whatever the change made of them. Where it also changes configuration that steers checks,
    they are run once more with the base's: what passes only with its own is told to the reviewer, and does not pass
    where there is none who is not the author (`strict`). What is `red` without the change is not blamed on it.

    A check runs in the environment that the candidate's own manifests ask for: a change may bring dependencies.
    """

    repository: Repository
    base: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 1800.0
    strict: bool = False
    environments: Environments | None = field(default=None, compare=False)
    red: Red = field(default_factory=dict)
    name: str = "checks"

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "checks 1",
            base=self.base,
            checks=self.facts.get("checks"),
            seconds=self.seconds,
            strict=self.strict,
            policy=plain_policy(),
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
        try:
            environment = None if self.environments is None else await self.environments.of(candidate.commit)
        except (SetupFailed, Misuse) as error:
            return await self._not_set_up(plan, candidate, error)
        async with scratch() as place:
            own = await self._tree(candidate, plan, place, steered=True)
            other = await self._tree(candidate, plan, place, steered=False) if plan.configuration else None
            ran = [
                await self._run(check, candidate, own, other, deadline, environment) for check in plan.checks
            ]
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

    async def _not_set_up(self, plan: CheckPlan, candidate: Candidate, error: SetupFailed | Misuse) -> Judged:
        """Whether it is the change that cannot be set up, or the project as it was."""
        assert self.environments is not None
        recipes = self.environments.recipe
        if await in_thread(lambda: _key(recipes, self.base) != _key(recipes, candidate.commit)):
            found = [*plan.findings, Finding("check.setup", f"what the change depends on: {error}")]
            return ruled_by(self, found, passed="")
        return ruled_by(
            self, plan.findings, passed="", error=f"{error} ({error.hint})" if error.hint else str(error)
        )

    async def _run(
        self,
        check: Check,
        candidate: Candidate,
        own: Path,
        other: Path | None,
        deadline: Deadline,
        environment: Environment | None,
    ) -> Ran:
        async def ask(directory: Path) -> Judged:
            return await run_check(
                check, candidate, directory, environment=environment, seconds=self.seconds, deadline=deadline
            )

        judged = await ask(own)
        if other is None or not judged.verdict.passed:
            return Ran(check, judged)
        return Ran(check, judged, await ask(other))

    def _ruled(self, plan: CheckPlan, ran: Sequence[Ran], more: Sequence[Finding]) -> Judged:
        found = [*plan.findings, *more]
        if self.strict:
            found = [_stricter(each) for each in found]
        excused = [each for each in ran if not each.passed and _red_before(each, self.red)]
        found += [_excused(each) for each in excused]
        found += [_failed(each) for each in ran if not each.passed and each not in excused]
        missing = [each for each in ran if each.is_missing]
        broken = [each for each in ran if each.is_broken]
        told = [f"could not decide: {each.told}" for each in broken]
        told += [_INSTALL] if missing else []
        good = [each.check.name for each in ran if each.passed]
        passed = [f"passed: {', '.join(good)}"] if good else []
        passed += [f"{each.check.name} not counted (red before the change)" for each in excused]
        return ruled_by(
            self,
            found,
            passed="; ".join(passed) or "there are no checks to run",
            error="; ".join(told) if broken else None,
            measurements={
                "checks": float(len(ran)),
                "missing": float(len(missing)),
                NOT_COUNTED: float(len(excused)),
                ABSTAINED: float(bool(excused) and not good),
            },
            more={"outputs": {each.check.name: each.output for each in ran if each.judged.reports}},
            reports=tuple(report for each in ran for report in each.judged.reports),
        )


def _key(recipes: Callable[[str], Recipe | None], commit: str) -> str | None:
    try:
        recipe = recipes(commit)
    except Misuse:
        return None
    return None if recipe is None else recipe.key


def _unsteered(plan: CheckPlan, ran: Sequence[Ran]) -> list[Finding]:
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


def _red_before(ran: Ran, red: Red) -> bool:
    """Whether nothing fails that did not fail without the change."""
    if ran.check.name not in red or ran.is_broken:
        return False
    before, now = red[ran.check.name], ran.failed_tests
    if before is None or now is None:
        return before is None and now is None
    return bool(now) and now <= set(before)


def _excused(ran: Ran) -> Finding:
    names = sorted(ran.failed_tests or ())
    which = f" ({len(names)} tests: {', '.join(names[:_NAMED])})" if names else ""
    told = f"{ran.check.name} fails as it did before the change{which}"
    return Finding(f"red-before.{ran.check.name}", told, severity=Severity.NOTE)


def _failed(ran: Ran) -> Finding:
    return Finding(f"check.{ran.check.name}", ran.told)
