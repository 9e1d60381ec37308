"""A judge that runs a command: tests, a linter, a type checker."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from ratchet.engines.engine import unheard
from ratchet.judges.judge import Candidate, Deadline, Judged, OutOfTime, Report, ruled
from ratchet.judges.reports import BadReport, JsonReport, TestCounts, count_tests, json_numbers, read_report
from ratchet.judges.scratch import blame, copied, described, ending_text, in_thread, run_confined, scratch
from ratchet.kernel import Limits, Missing, Misuse, Outcome, fingerprint, with_hint
from ratchet.placement import (
    LOCAL,
    NodeContext,
    NodeNeeds,
    NodeUnfit,
    Order,
    PlacedWork,
    Placement,
    WorkFailed,
    WorkLost,
    carry_out,
    content_hash,
    packed_directory,
)
from ratchet.sandbox import Bounds, CannotStart, Finished, Policy

_JUDGE = "ratchet.judges.command:judge_there"
# The command's own limit comes first; a node gives up by itself only where that did not work.
_GRACE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class CommandJudge:
    """Passes when `argv` exits with 0 and every report that was promised agrees.

    `argv` may name `{python}`, `{candidate}` and `{reports}`: an empty, writable directory that is not the candidate's.
    `junit` and `json_report` are files below it. The command works on a copy of the candidate; with `writes=False` it
    works on the candidate itself, which it cannot change. `at_least` and `at_most` bound the numbers of the reports.

    `place` is where the command sees the candidate, if that is not to be a new path each time. `copies` are files and
    directories from elsewhere that it finds in its copy of the candidate, by their path there; `mounts` are directories
    that it can only read, and `caches` directories in these that are empty and that it can write.

    `placement` is where the command runs; candidate, copies and mounts are sent along.
    """

    name: str
    argv: tuple[str, ...]
    junit: str | None = None
    json_report: JsonReport | None = None
    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    writes: bool = True
    bounds: Bounds = field(default_factory=lambda: Bounds(wall_seconds=600.0))
    policy: Policy = field(default_factory=Policy)
    place: Path | None = None
    copies: Mapping[str, Path] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    caches: Sequence[str] = ()
    placement: Placement = field(default=LOCAL, compare=False)

    def __post_init__(self) -> None:
        if not self.argv:
            raise Misuse(f"the judge {self.name} has no command to run")
        promised = [self.junit] if self.junit is not None else []
        promised += [self.json_report.file] if self.json_report is not None else []
        for file in promised:
            if not _inside(file):
                raise Misuse(
                    f"the report {file!r} does not lie below {{reports}}", hint="give a relative path"
                )

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "command 1",
            argv=self.argv,
            junit=self.junit,
            json_report=self.json_report,
            at_least=self.at_least,
            at_most=self.at_most,
            writes=self.writes,
            bounds=self.bounds,
            policy=self.policy,
        )

    async def judge(self, candidate: Candidate) -> Judged:
        if self.placement is LOCAL:
            return await self.judge_here(candidate)
        work = PlacedWork(
            name=f"judge {self.name}",
            here=lambda: self.judge_here(candidate),
            there=lambda: self._order(candidate),
            needs=NodeNeeds(
                memory_bytes=self.bounds.memory_bytes,
                wall_seconds=self.bounds.wall_seconds + _GRACE_SECONDS,
            ),
        )
        try:
            judged = await carry_out(self.placement, work)
        except (WorkLost, WorkFailed, Missing) as error:
            return ruled(self, Outcome.ERROR, with_hint(error))
        # Paths are others there; what it was judged by is the same.
        return replace(judged, verdict=replace(judged.verdict, judge_hash=self.hash))

    def _order(self, candidate: Candidate) -> Order:
        """The candidate and what it is judged with, by hash. What else may be read must be on the node."""
        sources = [
            *self.copies.values(),
            *self.mounts.values(),
            *([] if self.place is None else [self.place]),
        ]
        roots = [
            each for each in self.policy.readable if any(source.is_relative_to(each) for source in sources)
        ]
        contents: dict[str, bytes] = {}

        def pack(directory: Path) -> str:
            content = packed_directory(directory)
            contents[content_hash(content)] = content
            return content_hash(content)

        order = JudgeOrder(
            replace(self, placement=LOCAL),
            replace(candidate, read_diff=str, listen=unheard, finished={}, limits=Limits()),
            pack(candidate.directory),
            {root: pack(root) for root in roots},
        )
        return Order(_JUDGE, order, contents, f"judge {self.hash}")

    async def judge_here(self, candidate: Candidate) -> Judged:
        deadline = Deadline(candidate.deadline_seconds)
        async with scratch() as place:
            reports = place / "reports"
            reports.mkdir()
            directory = candidate.directory
            if self.writes:
                directory = await copied(directory, place / "candidate")
                await in_thread(lambda: self._bring(directory))
            try:
                finished = await self._run(directory, reports, deadline)
            except (OutOfTime, CannotStart) as error:
                return ruled(self, Outcome.ERROR, str(error))
            if finished.exit_code is None:
                return self._ruled(blame(finished), ending_text(finished), finished)
            try:
                counts, numbers = await in_thread(lambda: self._read(reports))
            except BadReport as error:
                # One that failed before it wrote its report says itself why.
                reason = str(error) if finished.ok else f"{ending_text(finished)} ({error})"
                return self._ruled(Outcome.ERROR, reason, finished)
        return self._ruled(*self._weighed(finished, counts, numbers), finished, counts, numbers)

    def _bring(self, directory: Path) -> None:
        """Copy what is missing, and make directories for others to be shown at. Follows no link."""
        for path, source in (*self.copies.items(), *self.mounts.items()):
            target = directory / path
            if target.parent.resolve() != directory.resolve() / target.parent.relative_to(directory):
                continue
            if path in self.mounts:
                target.mkdir(parents=True, exist_ok=True)
            elif not os.path.lexists(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir() and not source.is_symlink():
                    shutil.copytree(source, target, symlinks=True)
                else:
                    shutil.copy2(source, target, follow_symlinks=False)

    async def _run(self, directory: Path, reports: Path, deadline: Deadline) -> Finished:
        seen = self.place or directory
        # A real directory of the candidate's own hides what would be brought there.
        shown = {seen / path: source for path, source in self.mounts.items() if _is_empty(directory / path)}
        caches = {
            seen / path: reports.parent / f"cache-{number}"
            for number, path in enumerate(self.caches)
            if (seen / path).parent in shown
        }
        for cache in caches.values():
            cache.mkdir()
        return await run_confined(
            self.argv,
            words={"candidate": seen, "reports": reports},
            cwd=seen,
            bounds=self.bounds,
            policy=self.policy,
            deadline=deadline,
            places={**({} if self.place is None else {self.place: directory}), **shown, **caches},
            readable=(directory,),
            writable=(*((directory,) if self.writes else ()), reports, *caches.values()),
        )

    def _read(self, reports: Path) -> tuple[TestCounts | None, dict[str, float]]:
        counts, numbers = None, {}
        if self.junit is not None:
            counts = count_tests(read_report(reports, self.junit), self.junit)
        if self.json_report is not None:
            numbers = json_numbers(read_report(reports, self.json_report.file), self.json_report)
        return counts, {**numbers, **(counts.measurements() if counts else {})}

    def _weighed(
        self, finished: Finished, counts: TestCounts | None, numbers: Mapping[str, float]
    ) -> tuple[Outcome, str]:
        """An exit code of 0 is one witness; the reports are the others, and all of them must agree."""
        if not finished.ok:
            names = f": {', '.join(counts.broken)}" if counts and counts.broken else ""
            return blame(finished), ending_text(finished) + names
        broken = numbers.get("failures", 0) + numbers.get("errors", 0)
        if broken > 0:
            return Outcome.FAILED, f"it exited with 0, but its report shows {broken:g} failed tests"
        if "tests" in numbers and numbers["tests"] <= numbers.get("skipped", 0):
            return Outcome.FAILED, f"no test was run ({numbers['tests']:g} found, all of them skipped)"
        for name, least in self.at_least.items():
            if numbers.get(name, -math.inf) < least:
                return Outcome.FAILED, f"{name} is {numbers.get(name, 'absent')}, below {least:g}"
        for name, most in self.at_most.items():
            if numbers.get(name, math.inf) > most:
                return Outcome.FAILED, f"{name} is {numbers.get(name, 'absent')}, above {most:g}"
        ran = f", {numbers['tests']:g} tests" if "tests" in numbers else ""
        return Outcome.PASSED, f"it exited with 0{ran}"

    def _ruled(
        self,
        outcome: Outcome,
        reason: str,
        finished: Finished,
        counts: TestCounts | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> Judged:
        report = {
            **described(finished),
            "argv": self.argv,
            "measurements": numbers or {},
            "broken_tests": counts.broken if counts else [],
            "failed_tests": sorted(counts.failed) if counts else None,
        }
        measured = {
            "wall_ms": finished.wall_ms,
            "cpu_ms": finished.cpu_ms,
            "peak_bytes": float(finished.peak_bytes),
        }
        return ruled(
            self,
            outcome,
            reason,
            report=Report(f"{self.name}.json", json.dumps(report).encode()),
            measurements={**measured, **(numbers or {})},
        )


class JudgeOrder(NamedTuple):
    """A judge and its candidate for a node: the hashes of the candidate's files and of directories that are shown."""

    judge: CommandJudge
    candidate: Candidate
    files: str
    roots: Mapping[Path, str]


async def judge_there(order: JudgeOrder, node: NodeContext) -> Judged:
    """What a node does. Raises `NodeUnfit` where it lacks what the command is to read."""
    judge, policy = order.judge, order.judge.policy
    own = {root: await in_thread(partial(node.directory, sha256)) for root, sha256 in order.roots.items()}
    for path in policy.readable:
        if path not in own and not path.exists():
            raise NodeUnfit(f"{node.name} has no {path}, which {judge.name} reads")

    def moved(path: Path) -> Path:
        return next(
            (there / path.relative_to(root) for root, there in own.items() if path.is_relative_to(root)), path
        )

    judge = replace(
        judge,
        copies={name: moved(path) for name, path in judge.copies.items()},
        mounts={name: moved(path) for name, path in judge.mounts.items()},
        policy=replace(
            policy,
            readable=tuple(path for path in policy.readable if path not in own),
            places={**policy.places, **own},
        ),
    )
    directory = await in_thread(partial(node.directory, order.files))
    return await judge.judge_here(replace(order.candidate, directory=directory))


def _is_empty(directory: Path) -> bool:
    return directory.is_dir() and not directory.is_symlink() and not any(directory.iterdir())


def _inside(file: str) -> bool:
    path = Path(file)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
