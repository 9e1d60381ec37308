"""The gates that hold a change to its plan and to a size that can be reviewed, and what the spec says about QA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ratchet.judges import Candidate, Judged
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.scratch import in_thread
from ratchet.ledger.protocols import Protocol
from ratchet.protocols.qa.check_plan import is_ci
from ratchet.protocols.qa.findings import FindingSeverity, QaFinding, added_lines, ruled_by
from ratchet.protocols.spec.step_spec import QaPolicy, candidates, unsafe_path
from ratchet.protocols.stream import ProtocolBlocked
from ratchet.workspaces import Repository, TooLarge, TreeChange
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
    grow, its context may be rewritten, and `outputs` may be written. Without a review, `closed` are the files
    that decide about changes, which then may not be touched, nor the configuration of CI. Trees are compared, not
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

    def _look(self, commit: str) -> tuple[Sequence[TreeChange], list[QaFinding]]:
        changes = self.repository.changes(self.base, commit)
        findings = [found for change in changes for found in self._of(change, commit)]
        if self.must_change and not any(_is_work(change.path) for change in changes):
            message = f"a step that is to do work changed nothing outside of {FOLDER}/"
            findings.append(QaFinding("empty", message))
        return changes, findings

    def _of(self, change: TreeChange, commit: str) -> Iterator[QaFinding]:
        path = change.path
        complaint = self._complaint(change, commit)
        if complaint is not None:
            yield QaFinding(_TOUCHED, complaint, path)
        elif change.before is None and _is_junk(path):
            yield QaFinding("junk", "was left lying about and does not belong into the change", path)
        if any(entry is not None and entry.mode == SUBMODULE for entry in (change.before, change.after)):
            message = "is another repository, whose files no gate and no reviewer sees"
            yield QaFinding("submodule", message, path, severity=FindingSeverity.MAJOR)

    def _complaint(self, change: TreeChange, commit: str) -> str | None:
        """What is wrong with a change of something that is agreed on; nothing if it is none, or allowed."""
        path = change.path
        if path in self.held:
            return f"is part of the contract and was {change.status}"
        if self.closed is not None and (path in self.closed or is_ci(path)):
            return f"decides about changes and was {change.status} in a step without review"
        if _is_work(path):
            return None
        stays = change.after is not None and change.after.is_file
        if path == f"{self.root}/{LOG}":
            return None if stays and self._has_grown(change, commit) else "may only grow"
        if path == f"{self.root}/{CONTEXT}" or path in self.outputs:
            return None if stays else "must stay a plain file"
        return f"is part of the contract and was {change.status}"

    def _has_grown(self, change: TreeChange, commit: str) -> bool:
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


@dataclass(frozen=True, slots=True)
class StepQa:
    """`allow_author` lets a step be reviewed by who made it; a spec must say so in so many words."""

    policy: QaPolicy
    prompt: str | None
    model: str | None
    engine_id: str | None
    outputs: tuple[str, ...]
    allow_author: bool
    allow_empty: bool
    allow_checks: bool


def read_asked(spec: Mapping[str, Any]) -> StepQa:
    """Raises `ProtocolBlocked` for a policy that there is not."""
    qa, metadata = table(spec.get("qa")), table(spec.get("metadata"))
    outputs = table(spec.get("outputs"))
    word = qa.get("policy")
    try:
        policy = QaPolicy.FULL if word is None else QaPolicy(word)
    except ValueError:
        known = ", ".join(QaPolicy)
        raise ProtocolBlocked(
            f"there is no QA policy {word!r}", event="qa_error", hint=f"use one of {known} in the step's spec"
        ) from None
    return StepQa(
        policy,
        text(qa.get("prompt")),
        text(qa.get("model")),
        text(qa.get("engine_id")),
        tuple(path for path in (outputs.get("protocol"), *table(outputs.get("aux")).values()) if text(path)),
        allow_author=metadata.get("allow_author") is True,
        allow_empty=metadata.get("allow_empty") is True,
        allow_checks=metadata.get("allow_checks") is True,
    )


def root_of(protocol: Protocol) -> str:
    """The folder of the protocol's own files on its branch."""
    return f"{FOLDER}/{protocol.name}"


def prompts_of(protocol: Protocol, spec: Mapping[str, Any]) -> frozenset[str]:
    """Every path that may be the prompt of a step of the protocol."""
    root = root_of(protocol)
    steps = table(protocol.spec).get("steps")
    return frozenset(
        path
        for step in (spec, *(steps if isinstance(steps, list) else ()))
        for reference in _references(table(step))
        for path in candidates(reference, root)
    ) | {f"{root}/plan.md", f"{root}/00-setup.md"}


def places(paths: tuple[str, ...], root: str) -> frozenset[str]:
    """Where these paths of a spec may lie in the repository."""
    return frozenset(place for path in paths if unsafe_path(path) is None for place in candidates(path, root))


def table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _references(step: Mapping[str, Any]) -> Iterator[str]:
    for reference in (step.get("prompt_ref"), table(step.get("qa")).get("prompt")):
        path = text(reference)
        if path is not None and unsafe_path(path) is None:
            yield path


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
            message = f"{lines} changed lines; a step may have {self.most_lines} (protocols.diff_lines)"
            return ruled_by(self, [QaFinding("lines", message)], passed="", measurements=measured)
        try:
            new = self._new_bytes(commit, changes)
        except TooLarge as error:
            return ruled_by(self, [QaFinding("bytes", str(error))], passed="", measurements=measured)
        measured["bytes"] = float(new)
        found = []
        if new > self.most_bytes:
            found.append(QaFinding("bytes", f"{new} new bytes; a step may bring {self.most_bytes}"))
        return ruled_by(self, found, passed=f"{lines} changed lines, {new} new bytes", measurements=measured)

    def _new_bytes(self, commit: str, changes: Sequence[TreeChange]) -> int:
        return sum(len(line.text) for line in added_lines(self.repository, self.base, commit, changes))
