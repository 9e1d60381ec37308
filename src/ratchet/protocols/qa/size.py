"""The gate that keeps a change small enough to be understood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.judges import Candidate, Judged
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.scratch import in_thread
from ratchet.protocols.qa.added import added_lines
from ratchet.protocols.qa.findings import Finding, ruled_by
from ratchet.workspaces import Change, Repository, TooLarge

MOST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class SizeGate:
    """Passes a change of at most `most_lines` lines and `most_bytes` new bytes.

    Each changed file counts as one line at least. Files that are not text have no lines and count by their bytes.
    """

    repository: Repository
    base: str
    most_lines: int
    most_bytes: int = MOST_BYTES
    name: str = "size"

    @cached_property
    def hash(self) -> str:
        return fingerprint("size 1", base=self.base, most_lines=self.most_lines, most_bytes=self.most_bytes)

    async def judge(self, candidate: Candidate) -> Judged:
        return await in_thread(lambda: self._judge(candidate.commit))

    def _judge(self, commit: str) -> Judged:
        changes = self.repository.changes(self.base, commit)
        counts = self.repository.line_counts(self.base, commit).values()
        lines = sum(1 if count is None else max(1, sum(count)) for count in counts)
        measured = {"lines": float(lines), "files": float(len(changes))}
        if lines > self.most_lines:
            told = f"{lines} changed lines; a step may have {self.most_lines} (protocols.diff_lines)"
            return ruled_by(self, [Finding("lines", told)], passed="", measurements=measured)
        try:
            new = self._new_bytes(commit, changes)
        except TooLarge as error:
            return ruled_by(self, [Finding("bytes", str(error))], passed="", measurements=measured)
        measured["bytes"] = float(new)
        found = []
        if new > self.most_bytes:
            found.append(Finding("bytes", f"{new} new bytes; a step may bring {self.most_bytes}"))
        return ruled_by(self, found, passed=f"{lines} changed lines, {new} new bytes", measurements=measured)

    def _new_bytes(self, commit: str, changes: Sequence[Change]) -> int:
        return sum(len(line.text) for line in added_lines(self.repository, self.base, commit, changes))
