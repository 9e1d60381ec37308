"""What a gate found in a change, the verdict that follows, and the lines that a change adds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from ratchet.judges import Judge, Judged, Report
from ratchet.judges.judge import ruled
from ratchet.kernel import Outcome
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
