"""The gate that has a change reviewed, with everything that a reviewer needs to know beside it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from ratchet.judges import Candidate, Judge, Judged, Report, VerdictJudge
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.judge import ruled
from ratchet.judges.scratch import in_thread
from ratchet.kernel import NotFound, Outcome
from ratchet.workspaces import Repository, TreeChange

_SHOWN = 5


class FindingSeverity(StrEnum):
    """As a reviewer has them, too. Only a blocker fails; a major one is for the reviewer to weigh."""

    BLOCKER = "blocker"
    MAJOR = "major"
    MINOR = "minor"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class QaFinding:
    """`rule` names what was looked for. The message never repeats a secret."""

    rule: str
    message: str
    file: str | None = None
    line: int | None = None
    severity: FindingSeverity = FindingSeverity.BLOCKER

    @property
    def text(self) -> str:
        where = "" if self.file is None else self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.message}" if where else self.message


def ruled_by(
    judge: Judge,
    findings: Sequence[QaFinding],
    *,
    passed: str,
    error: str | None = None,
    measurements: Mapping[str, float] | None = None,
    more: Mapping[str, Any] | None = None,
    reports: tuple[Report, ...] = (),
) -> Judged:
    """The verdict of a gate: `error` if there is one, failed for any blocker, else passed with what to look at."""
    blockers = [each for each in findings if each.severity is FindingSeverity.BLOCKER]
    others = [each for each in findings if each.severity in (FindingSeverity.MAJOR, FindingSeverity.MINOR)]
    if error is not None:
        outcome, reason = Outcome.ERROR, error
    elif blockers:
        outcome, reason = Outcome.FAILED, _listed(blockers)
    else:
        outcome, reason = Outcome.PASSED, passed
    if others and outcome is Outcome.PASSED:
        reason = f"{reason}; to be looked at: {_listed(others)}"
    document = {"findings": [asdict(each) for each in findings], **(more or {})}
    own = Report(f"{judge.name}.json", json.dumps(document).encode())
    counted = {"findings": float(len(findings)), **(measurements or {})}
    judged = ruled(judge, outcome, reason, report=own, measurements=counted)
    return Judged(judged.verdict, (own, *reports))


def _listed(findings: Sequence[QaFinding]) -> str:
    more = f" and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
    return "; ".join(each.text for each in findings[:_SHOWN]) + more


class AddedLine(NamedTuple):
    path: str
    number: int
    text: bytes


def added_lines(
    repository: Repository, base: str, commit: str, changes: Sequence[TreeChange]
) -> Iterator[AddedLine]:
    """Lines of `commit` that none of the changed files had before; one that only moved is not among them.

    Raises `TooLarge` for a file beyond the bounds.
    """
    known: Counter[bytes] = Counter()
    for change in changes:
        if change.before is not None and change.before.is_file:
            known.update(_lines(repository, base, change.path))
    for change in changes:
        if change.after is None or not change.after.is_file:
            continue
        for number, text in enumerate(_lines(repository, commit, change.path), start=1):
            if known[text]:
                known[text] -= 1
            else:
                yield AddedLine(change.path, number, text)


def _lines(repository: Repository, commit: str, path: str) -> list[bytes]:
    return repository.read_file(commit, path).splitlines()


FULL = """\
You are the last gate before a change becomes part of a branch. Nobody looks at it after you.

Hold the change against the step that asked for it, and against the plan that the step belongs to:
- Does it do everything that the step asks for? Something that is only announced, stubbed or left for later is not done.
- Is it right, also at the edges: empty input, errors, several callers at once?
- Do its tests prove what they claim? A test that cannot fail, or that was weakened or removed, is a blocker.
- Does it do anything that nobody asked for?
- What the gates before you ask to be looked at needs an answer: a change of the files that decide about changes passes
  only if the step asks for it and it weakens nothing.

Report what you find with the file and the line. Style alone is a note. When you are not sure that it is right, it
fails.
"""

BRIEF = """\
Keep it brief: this is a small step. Look for what is plainly wrong or missing and report only blockers and majors. It
still fails if it does not do what the step asks for.
"""


# Lines of text stand behind a sign in a patch, so nothing that a file holds can begin or end such a block.
_BINARY = re.compile(r"^GIT binary patch\n(?:(?:literal|delta) \d+\n(?:[A-Za-z]\S*\n)*\n?)+", re.MULTILINE)


def readable(patch: str) -> str:
    """The patch with a word in place of each content that is no text."""
    return _BINARY.sub("(not a text)\n", patch)


_LONGEST = 40_000
_FILES, _FEW_FILES = 1000, 100


@dataclass(frozen=True, kw_only=True)
class ReviewGate:
    """Asks `verdict`, which is shown the plan, the step, what the gates said and the feedback on earlier attempts.

    All of that comes from the base, as data: the change itself is only in the diff. A `brief` review sees the step
    alone.
    """

    verdict: VerdictJudge
    repository: Repository
    base: str
    root: str
    step: str
    prompts: tuple[str, ...]
    feedback: str = ""
    brief: bool = False
    name: str = "review"

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "review 1",
            verdict=self.verdict.hash,
            base=self.base,
            root=self.root,
            step=self.step,
            prompts=self.prompts,
            feedback=self.feedback,
            brief=self.brief,
        )

    async def judge(self, candidate: Candidate) -> Judged:
        length = len(await in_thread(lambda: candidate.diff))
        if length > self.verdict.max_diff:
            message = f"the change is too long for a review: {length} characters of {self.verdict.max_diff}"
            return ruled_by(self, [QaFinding("length", message)], passed="")
        dossier = await in_thread(lambda: "\n\n".join(self._dossier(candidate)))
        judged = await self.verdict.judge(replace(candidate, prompt=dossier))
        return replace(judged, verdict=replace(judged.verdict, judge=self.name, judge_hash=self.hash))

    def _dossier(self, candidate: Candidate) -> Iterator[str]:
        yield f"# The step {self.step}"
        step = next(filter(None, map(self._read, self.prompts)), None)
        yield step or candidate.prompt
        if not self.brief:
            for name in ("plan.md", "context.md", "log.md"):
                found = self._read(f"{self.root}/{name}")
                if found:
                    yield f"# {name}\n\n{found}"
        if candidate.finished:
            said = (f"- {each.judge}: {each.outcome}: {each.reason}" for each in candidate.finished.values())
            yield "# What the gates said\n\n" + "\n".join(said)
        if self.feedback:
            # An earlier verdict among the words would make this one unclear.
            lines = (line for line in self.feedback.splitlines() if "verdict" not in line.lower())
            yield "# What was wrong with an earlier attempt\n\n" + "\n".join(lines)
        yield "# Changed files\n\n" + "\n".join(self._changed(candidate.commit))

    def _changed(self, commit: str) -> Iterator[str]:
        changes = self.repository.changes(self.base, commit)
        most = _FEW_FILES if self.brief else _FILES
        yield from (f"- {change.path} ({change.status})" for change in changes[:most])
        if len(changes) > most:
            yield f"- and {len(changes) - most} more"

    def _read(self, path: str) -> str | None:
        try:
            content = self.repository.read_file(self.base, path)
        except NotFound:
            return None
        return content.decode("utf-8", "replace")[:_LONGEST]
