"""The gate that holds a change to its plan: what was agreed on stays as it was, and only the work is in the commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.judges import Candidate, Judged
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.scratch import in_thread
from ratchet.protocols.qa.check_files import is_ci
from ratchet.protocols.qa.findings import Finding, Severity, ruled_by
from ratchet.workspaces import Change, Repository
from ratchet.workspaces.trees import SUBMODULE

FOLDER = ".protocols"
LOG, CONTEXT = "log.md", "context.md"
_JUNK_NAMES = frozenset({"quality-report.md", ".DS_Store", "Thumbs.db"})
_JUNK_ENDINGS = (".pyc", ".orig", ".rej", ".swp")
_JUNK_DIRECTORIES = frozenset({"__pycache__"})
_TOUCHED = "contract"


@dataclass(frozen=True, kw_only=True)
class ContractGate:
    """Passes a change that leaves the contract alone and brings work, and nothing that was left lying about.

    The contract is everything below `.protocols/`, and `held`: prompts that lie elsewhere. Only the protocol's log may
    grow, its context may be rewritten, and `outputs` may be written. Where nobody reviews, `closed` are the files
    that decide about changes, which then may not be touched, nor what CI is told to do. Trees are compared, not
    directories, so no link leads past this gate.
    """

    repository: Repository
    base: str
    root: str
    held: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    closed: frozenset[str] | None = None
    must_change: bool = True
    name: str = "contract"

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "contract 1",
            base=self.base,
            root=self.root,
            held=self.held,
            outputs=self.outputs,
            closed=self.closed,
            must_change=self.must_change,
        )

    async def judge(self, candidate: Candidate) -> Judged:
        changes, findings = await in_thread(lambda: self._look(candidate.commit))
        touched = sum(each.rule == _TOUCHED for each in findings)
        return ruled_by(
            self,
            findings,
            passed=f"{len(changes)} changed files, none of them part of the contract",
            measurements={"touched": float(touched), "files": float(len(changes))},
        )

    def _look(self, commit: str) -> tuple[Sequence[Change], list[Finding]]:
        changes = self.repository.changes(self.base, commit)
        findings = [found for change in changes for found in self._of(change, commit)]
        if self.must_change and not any(_is_work(change.path) for change in changes):
            told = f"a step that is to do work changed nothing outside of {FOLDER}/"
            findings.append(Finding("empty", told))
        return changes, findings

    def _of(self, change: Change, commit: str) -> Iterator[Finding]:
        path = change.path
        complaint = self._complaint(change, commit)
        if complaint is not None:
            yield Finding(_TOUCHED, complaint, path)
        elif change.before is None and _is_junk(path):
            yield Finding("junk", "was left lying about and does not belong into the change", path)
        if any(entry is not None and entry.mode == SUBMODULE for entry in (change.before, change.after)):
            told = "is another repository, whose files no gate and no reviewer sees"
            yield Finding("submodule", told, path, severity=Severity.MAJOR)

    def _complaint(self, change: Change, commit: str) -> str | None:
        """What is wrong with a change of something that is agreed on; nothing if it is none, or allowed."""
        path = change.path
        if path in self.held:
            return f"is part of the contract and was {change.status}"
        if self.closed is not None and (path in self.closed or is_ci(path)):
            return f"decides about changes and was {change.status} in a step that nobody reviews"
        if _is_work(path):
            return None
        stays = change.after is not None and change.after.is_file
        if path == f"{self.root}/{LOG}":
            return None if stays and self._has_grown(change, commit) else "may only grow"
        if path == f"{self.root}/{CONTEXT}" or path in self.outputs:
            return None if stays else "must stay a plain file"
        return f"is part of the contract and was {change.status}"

    def _has_grown(self, change: Change, commit: str) -> bool:
        if change.before is None:
            return True
        before = self.repository.read_file(self.base, change.path)
        return self.repository.read_file(commit, change.path).startswith(before)


def _is_work(path: str) -> bool:
    return path.partition("/")[0] != FOLDER


def _is_junk(path: str) -> bool:
    *directories, name = path.split("/")
    return (
        name in _JUNK_NAMES
        or name.endswith(_JUNK_ENDINGS)
        or bool(_JUNK_DIRECTORIES.intersection(directories))
    )
