"""The gate that runs a repository's own checks, as they were before the change."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ratchet.judges import Candidate, CommandJudge, Judged, hear
from ratchet.judges.judge import ABSTAINED, NOT_COUNTED, Deadline, OutOfTime
from ratchet.judges.scratch import NOT_RUN, copied, in_thread, scratch
from ratchet.kernel import Misuse, Outcome, RatchetError, fingerprint, with_hint
from ratchet.ledger import EventFilter
from ratchet.ledger.events import latest
from ratchet.placement import LOCAL, Placement
from ratchet.projects.environments import Environment, Environments, Recipe, SetupFailed
from ratchet.projects.environments.environment import tail
from ratchet.protocols.qa.contract import CheckPlan, PlannedCheck, UnknownCheck, plan_checks, table
from ratchet.protocols.qa.gates import FindingSeverity, QaFinding, ruled_by
from ratchet.protocols.stream import ProtocolBlocked, Stream
from ratchet.sandbox import Bounds, Policy
from ratchet.workspaces import Repository, TreeChange
from ratchet.workspaces.directories import remove_tree
from ratchet.workspaces.trees import PROGRAM

# The event that tells which checks fail on the untouched base.
CHECKED = "baseline_checked"
_NAMED = 5
_INSTALL = (
    "a check runs without the network, in the project's environment: `ratchet project setup` shows how that is made,"
    " `ratchet project checks` what is run"
)
_Ground = tuple[Path, Environment | None]
Red = Mapping[str, Sequence[str] | None]
"""The checks that fail without the change, each with the tests that do, where it reports them."""


def environments_of(stream: Stream) -> Environments:
    """The project's environments. Each command of a set-up, and now and then what it prints, is an event."""

    def tell(type: str, line: str) -> None:
        with stream.job.write() as tx:
            stream.event(tx, type, line[:1000])

    runtime = stream.job.runtime
    facts = table(stream.project.facts)
    return Environments(
        runtime.home,
        stream.clone.repository,
        facts,
        runtime.settings.projects,
        trusted=stream.protocol.base_commit,
        tell=partial(tell, "environment_command"),
        hear=partial(tell, "environment_output"),
    )


async def environment_of(stream: Stream, commit: str) -> Environment | None:
    """What checks and authors need at a commit, made now if it is not there yet. Raises `ProtocolBlocked`."""
    try:
        return await environments_of(stream).of(commit)
    except (SetupFailed, Misuse) as error:
        hint = (error.hint or "").replace("PROJECT", str(stream.project.id))
        raise ProtocolBlocked(str(error), event="environment_failed", hint=hint or None) from error


def red_checks(stream: Stream) -> Red:
    """The checks that fail on the protocol's base, each with the tests that do."""
    with stream.job.ledger.read() as tx:
        found = latest(tx.connection, where=EventFilter(run_id=stream.protocol.run_id, type=CHECKED), limit=1)
    red: Red = found[0].data["red"] if found else {}
    return red


@dataclass(frozen=True, kw_only=True)
class CheckGate:
    """Passes a change that passes every check of the repository. A check that cannot be run is an error.

    Scripts are the base's, whatever the change made of them. Where it also changes configuration that steers checks,
    they are run once more with the base's: what passes only with its own is shown to the reviewer, and does not pass
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
    placement: Placement = field(default=LOCAL, compare=False)
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
            none = QaFinding("no-checks", "the repository has no checks", severity=FindingSeverity.NOTE)
            return self._ruled(plan, [], [none])
        try:
            # What the change installs may steer its checks, too.
            before = await self._environment(self.base) if plan.configuration else None
        except (SetupFailed, Misuse) as error:
            return ruled_by(self, plan.findings, passed="", error=with_hint(error))
        try:
            environment = await self._environment(candidate.commit)
        except (SetupFailed, Misuse) as error:
            return await self._not_set_up(plan, candidate, error)
        async with scratch() as place:
            own = await self._tree(candidate, plan, place, steered=True)
            other = await self._tree(candidate, plan, place, steered=False) if plan.configuration else None
            ran = [
                await self._run(
                    check, candidate, (own, environment), None if other is None else (other, before), deadline
                )
                for check in plan.checks
            ]
        return self._ruled(plan, ran, _unsteered(plan, ran))

    async def _environment(self, commit: str) -> Environment | None:
        return None if self.environments is None else await self.environments.of(commit)

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
            found = [*plan.findings, QaFinding("check.setup", f"what the change depends on: {error}")]
            return ruled_by(self, found, passed="")
        return ruled_by(self, plan.findings, passed="", error=with_hint(error))

    async def _run(
        self,
        check: PlannedCheck,
        candidate: Candidate,
        own: _Ground,
        other: _Ground | None,
        deadline: Deadline,
    ) -> CheckRun:
        async def ask(ground: _Ground) -> Judged:
            directory, environment = ground
            return await run_check(
                check,
                candidate,
                directory,
                environment=environment,
                seconds=self.seconds,
                deadline=deadline,
                placement=self.placement,
            )

        judged = await ask(own)
        if other is None or not judged.verdict.passed:
            return CheckRun(check, judged)
        return CheckRun(check, judged, await ask(other))

    def _ruled(self, plan: CheckPlan, ran: Sequence[CheckRun], more: Sequence[QaFinding]) -> Judged:
        found = [*plan.findings, *more]
        if self.strict:
            found = [_stricter(each) for each in found]
        excused = [each for each in ran if not each.passed and _red_before(each, self.red)]
        found += [_excused(each) for each in excused]
        found += [_failed(each) for each in ran if not each.passed and each not in excused]
        missing = [each for each in ran if each.is_missing]
        broken = [each for each in ran if each.is_broken]
        reasons = [f"could not decide: {each.summary}" for each in broken]
        reasons += [_INSTALL] if missing else []
        good = [each.check.name for each in ran if each.passed]
        passed = [f"passed: {', '.join(good)}"] if good else []
        passed += [f"{each.check.name} not counted (red before the change)" for each in excused]
        return ruled_by(
            self,
            found,
            passed="; ".join(passed) or "there are no checks to run",
            error="; ".join(reasons) if broken else None,
            measurements={
                "checks": float(len(ran)),
                "missing": float(len(missing)),
                NOT_COUNTED: float(len(excused)),
                ABSTAINED: float(not good),
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


def _unsteered(plan: CheckPlan, ran: Sequence[CheckRun]) -> list[QaFinding]:
    """What the reviewer sees of changed configuration."""
    needing = [each.check.name for each in ran if each.unsteered and not each.unsteered.verdict.passed]
    severity, message = FindingSeverity.MINOR, ""
    if needing:
        severity, message = FindingSeverity.MAJOR, f"; {', '.join(needing)} passes only with the change's own"
    elif all(each.unsteered for each in ran):
        message = "; they pass without that as well"
    return [
        QaFinding(
            "check-configuration",
            f"steers checks and was {change.status}{message}",
            change.path,
            severity=severity,
        )
        for change in plan.configuration
    ]


def _stricter(finding: QaFinding) -> QaFinding:
    return (
        replace(finding, severity=FindingSeverity.BLOCKER)
        if finding.severity is FindingSeverity.MAJOR
        else finding
    )


def _red_before(ran: CheckRun, red: Red) -> bool:
    """Whether nothing fails that did not fail without the change."""
    if ran.check.name not in red or ran.is_broken:
        return False
    before, now = red[ran.check.name], ran.failed_tests
    if before is None or now is None:
        return before is None and now is None
    return bool(now) and now <= set(before)


def _excused(ran: CheckRun) -> QaFinding:
    names = sorted(ran.failed_tests or ())
    which = f" ({len(names)} tests: {', '.join(names[:_NAMED])})" if names else ""
    message = f"{ran.check.name} fails as it did before the change{which}"
    return QaFinding(f"red-before.{ran.check.name}", message, severity=FindingSeverity.NOTE)


def _failed(ran: CheckRun) -> QaFinding:
    return QaFinding(f"check.{ran.check.name}", ran.summary)


_GIB = 1024 * 1024 * 1024
_TAIL = 6000
_LINES = 12
_PLACES = "/usr/local/bin:/usr/bin:/bin"
_PYTEST = re.compile(r"(?:.*/)?py\.?test[\d.]*")
_RUNNING = ("-m", "run", "exec", "--")
# What Python itself says when it is to run a module that it does not have.
# What make says when a program of its recipe is missing; it exits with 2 then, as for any failure.
_NO_PROGRAM = re.compile(r"^g?make(?:\[\d+\])?: \*\*\* .*Error 127\s*$", re.MULTILINE)
_NO_MODULE = re.compile(r"\S*python[\d.]*: No module named \S+\s*\Z")


@dataclass(frozen=True, slots=True)
class CheckRun:
    """A check, and what it said: of the change, and of the change with the base's configuration."""

    check: PlannedCheck
    judged: Judged
    unsteered: Judged | None = None

    @property
    def passed(self) -> bool:
        return self.judged.verdict.passed

    @property
    def is_missing(self) -> bool:
        """Whether it could not be run at all, rather than that it did not pass."""
        if self.judged.reports:
            said = self._said
            missing = _NO_MODULE.match(said["stderr"]) or _NO_PROGRAM.search(said["stderr"])
            return said["exit_code"] in NOT_RUN or missing is not None
        return not self.passed and self.judged.verdict.reason != str(OutOfTime())

    @property
    def is_broken(self) -> bool:
        """Whether it says nothing about what it was run on."""
        return self.is_missing or self.judged.verdict.outcome is Outcome.ERROR

    @property
    def was_cut_off(self) -> bool:
        """Whether a limit ended it: on an untouched base that says that it does not work, whatever it has printed."""
        return bool(self.judged.reports) and self._said["stopped"] is not None

    @property
    def found_nothing_that_works(self) -> bool:
        """Whether every test that it found is an error, as when nothing can be imported."""
        numbers = self._said.get("measurements", {}) if self.judged.reports else {}
        errors = numbers.get("errors", 0)
        return bool(errors) and errors + numbers.get("skipped", 0) >= numbers.get("tests", 0)

    @property
    def failed_tests(self) -> frozenset[str] | None:
        """The tests that failed; nothing where the check does not tell."""
        names = self._said.get("failed_tests") if self.judged.reports else None
        return None if names is None else frozenset(names)

    @property
    def output(self) -> str:
        """The end of what it printed."""
        if not self.judged.reports:
            return ""
        return f"{self._said['stdout']}\n{self._said['stderr']}".strip()[-_TAIL:]

    @property
    def summary(self) -> str:
        """How it ended, and the last lines that it printed."""
        lines = "".join(f"\n  {line}" for line in tail(self.output, _LINES).splitlines())
        return f"{self.check.name}: {self.judged.verdict.reason}{lines}"

    @property
    def _said(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.judged.reports[0].content)
        return said


async def run_check(
    check: PlannedCheck,
    candidate: Candidate,
    directory: Path,
    *,
    environment: Environment | None,
    seconds: float,
    deadline: Deadline,
    placement: Placement = LOCAL,
) -> Judged:
    """What a check says of the candidate's files in `directory`."""
    command = replace(_command(check, seconds, environment), placement=placement)
    return await hear(command, replace(candidate, directory=directory, deadline_seconds=deadline.left))


def plain_policy() -> Policy:
    """For a project without an environment: the system's programs, and the Python that runs Ratchet."""
    own = Path(sys.executable).parent
    return Policy(environment={"PATH": f"{_PLACES}:{own}", "CI": "true"})


def _command(check: PlannedCheck, seconds: float, environment: Environment | None) -> CommandJudge:
    """The check as a judge. A test run by pytest must also leave its report: an exit code alone is easily faked."""
    argv, junit = check.argv, None
    if _runs_pytest(argv):
        argv, junit = (*argv, "--junitxml={reports}/junit.xml"), "junit.xml"
    bounds = Bounds(wall_seconds=seconds, memory_bytes=4 * _GIB, processes=512, output_bytes=16 * 1024 * 1024)
    name = re.sub(r"[^\w.-]", "-", f"check-{check.name}")
    if environment is None:
        return CommandJudge(name=name, argv=argv, junit=junit, bounds=bounds, policy=plain_policy())
    variables = {**environment.variables_at(environment.tree), "CI": "true"}
    return CommandJudge(
        name=name,
        argv=argv,
        junit=junit,
        bounds=bounds,
        policy=Policy(environment=variables, readable=environment.shown),
        place=environment.tree,
        copies=environment.copies,
        mounts=environment.mounts,
        caches=environment.caches,
    )


def _runs_pytest(argv: Sequence[str]) -> bool:
    """Whether it is the program, or what another one runs: `python -m pytest`, `uv run pytest`."""
    if _PYTEST.fullmatch(argv[0]):
        return True
    return any(first in _RUNNING and _PYTEST.fullmatch(then) for first, then in itertools.pairwise(argv))


class CannotRestore(RatchetError):
    """A file of the base is no plain file, so it cannot be put back safely."""


def restore(repository: Repository, base: str, changes: Sequence[TreeChange], directory: Path) -> None:
    """Undo `changes` in `directory`. Nothing is written through a link: what is in the way is removed."""
    for change in changes:
        _clear(directory, change.path)
        if change.before is None:
            continue
        if not change.before.is_file:
            raise CannotRestore(
                f"{change.path} of {base[:12]} is a link or another repository, so it cannot be put back"
            )
        target = directory / change.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(repository.read_file(base, change.path))
        target.chmod(0o755 if change.before.mode == PROGRAM else 0o644)


def _clear(directory: Path, path: str) -> None:
    """Remove whatever is at `path`, and anything on the way to it that is no real directory."""
    place = directory
    parts = path.split("/")
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
            return
    target = directory / path
    if target.is_dir() and not target.is_symlink():
        remove_tree(target)
    elif os.path.lexists(target):
        target.unlink()
