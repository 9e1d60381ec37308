"""One check of a repository, run in the sandbox with the project's environment, and what it said."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.judges import Candidate, CommandJudge, Judged, hear
from ratchet.judges.deadline import Deadline, OutOfTime
from ratchet.judges.endings import NOT_RUN
from ratchet.kernel import Outcome
from ratchet.projects.environments import Environment
from ratchet.projects.environments.failure import tail
from ratchet.protocols.qa.check_plan import Check
from ratchet.sandbox import Bounds, Policy

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
class Ran:
    """A check, and what it said: of the change, and of the change with the base's configuration."""

    check: Check
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
    def told(self) -> str:
        """How it ended, and the last lines that it printed."""
        lines = "".join(f"\n  {line}" for line in tail(self.output, _LINES).splitlines())
        return f"{self.check.name}: {self.judged.verdict.reason}{lines}"

    @property
    def _said(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.judged.reports[0].content)
        return said


async def run_check(
    check: Check,
    candidate: Candidate,
    directory: Path,
    *,
    environment: Environment | None,
    seconds: float,
    deadline: Deadline,
) -> Judged:
    """What a check says of the candidate's files in `directory`."""
    command = _command(check, seconds, environment)
    return await hear(command, replace(candidate, directory=directory, deadline_seconds=deadline.left))


def plain_policy() -> Policy:
    """For a project without an environment: the system's programs, and the Python that runs Ratchet."""
    own = Path(sys.executable).parent
    return Policy(environment={"PATH": f"{_PLACES}:{own}", "CI": "true"})


def _command(check: Check, seconds: float, environment: Environment | None) -> CommandJudge:
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
    """Whether it is the program, or what another one is told to run: `python -m pytest`, `uv run pytest`."""
    if _PYTEST.fullmatch(argv[0]):
        return True
    return any(first in _RUNNING and _PYTEST.fullmatch(then) for first, then in itertools.pairwise(argv))
