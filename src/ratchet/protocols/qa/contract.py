"""The gates that hold a change to its plan and to a size that can be reviewed, and what the spec says about QA."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ratchet.judges import Candidate, Judged
from ratchet.judges.scratch import in_thread
from ratchet.kernel import decoded, fingerprint
from ratchet.ledger.protocols import Protocol
from ratchet.projects.discovery.facts import read_facts
from ratchet.protocols.qa.gates import FindingSeverity, QaFinding, added_lines, ruled_by
from ratchet.protocols.spec.step_spec import QaPolicy, candidates, unsafe_path
from ratchet.protocols.stream import ProtocolBlocked
from ratchet.workspaces import Repository, TooLarge, TreeChange, TreeEntry
from ratchet.workspaces.trees import PROGRAM, SUBMODULE


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """`scripts` are changes of what is run, which is put back; `configuration` are changes of what steers it."""

    checks: tuple[PlannedCheck, ...]
    scripts: tuple[TreeChange, ...] = ()
    configuration: tuple[TreeChange, ...] = ()
    findings: tuple[QaFinding, ...] = ()


class UnknownCheck(ValueError):
    """The project's facts name a check that cannot be understood. It would be left out silently otherwise."""


def plan_checks(repository: Repository, base: str, commit: str, facts: Mapping[str, Any]) -> CheckPlan:
    """The checks that the project's facts name, else the scripts for CI. Raises `UnknownCheck`.

    Scripts that only the change has are run as well: they make it no easier to pass.
    """
    files = repository.list_files(base)
    checks = tuple(_named(facts))
    read = functools.partial(repository.read_file, base)
    changes = repository.changes(base, commit)
    if not checks:
        there = {*files, *(each.path for each in changes if each.after is not None)}
        checks = tuple(_scripts(there))
    scripts = find_scripts(files, read, [check.argv for check in checks])
    edited = tuple(each for each in changes if each.path in scripts)
    steering = tuple(each for each in changes if is_configuration(each.path) and each.path not in scripts)
    return CheckPlan(checks, edited, steering, tuple(_findings(changes, edited)))


def closed_files(repository: Repository, base: str, facts: Mapping[str, Any]) -> frozenset[str]:
    """The scripts of the base that decide about changes. Raises `UnknownCheck`."""
    read = functools.partial(repository.read_file, base)
    return find_scripts(repository.list_files(base), read, [check.argv for check in _named(facts)])


def _named(facts: Mapping[str, Any]) -> Iterator[PlannedCheck]:
    known = read_facts(facts).checks
    if len(known) != len(facts.get("checks") or ()):
        raise UnknownCheck("one of the checks in the project's facts cannot be understood")
    for check in known:
        yield PlannedCheck(check.name, check.argv)


def _scripts(files: set[str]) -> Iterator[PlannedCheck]:
    for name in CHECKS:
        path = f"{SCRIPTS}{name}.sh"
        if path in files:
            yield PlannedCheck(name, ("bash", path))


def _findings(changes: Sequence[TreeChange], edited: Sequence[TreeChange]) -> Iterator[QaFinding]:
    for change in edited:
        message = f"decides about changes and was {change.status}; the base's version was run"
        yield QaFinding("check-script", message, change.path, severity=FindingSeverity.MAJOR)
    for change in changes:
        if is_ci(change.path):
            message = f"tells CI what to run and was {change.status}"
            yield QaFinding("ci-configuration", message, change.path, severity=FindingSeverity.MAJOR)
        if is_test(change.path) and change.after is None:
            yield QaFinding(
                "test-removed", "is a test and was removed", change.path, severity=FindingSeverity.MAJOR
            )


SCRIPTS = "scripts/ci/"
CHECKS = ("lint", "typecheck", "test", "build")
_CONFIGURATION = re.compile(
    r"""(?:
        conftest\.py | pytest\.ini | tox\.ini | setup\.(?:cfg|py) | pyproject\.toml | noxfile\.py | \.?mypy\.ini
        | \.?ruff\.toml | \.flake8 | \.?pylintrc | \.coveragerc | pyrightconfig\.json
        | (?:site|user)customize\.py | .*\.pth
        | (?:GNU)?[Mm]akefile | [Jj]ustfile | Taskfile\.ya?ml | CMakeLists\.txt | Rakefile | \.pre-commit-config\.yaml
        | package\.json | \.eslintrc.* | eslint\.config\..* | \.eslintignore | \.prettier(?:rc.*|ignore) | biome\.jsonc?
        | tsconfig.*\.json | (?:jest|vitest|vite|babel|playwright|cypress|webpack)\.config\..*
        | \.mocharc.* | karma\.conf\..*
        | Cargo\.toml | \.?clippy\.toml | \.?rustfmt\.toml | build\.rs | go\.mod | \.golangci\..* | phpunit\.xml.*
        | \.rspec | \.rubocop\.yml | build\.gradle.* | pom\.xml | \.npmrc
    )""",
    re.VERBOSE,
)
_TEST = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec)/.+\.\w+$|(?:^|/)test_[^/]+\.py$|_test\.\w+$|\.(?:test|spec)\.\w+$"
)
_CI = re.compile(
    r"\.github/(?:workflows|actions)/.+|\.gitlab-ci\.yml|\.gitlab/ci/.+|\.circleci/.+|azure-pipelines\.yml|Jenkinsfile"
)
_WORD = re.compile(r"[\w.][\w./-]*")
_LONGEST = 200_000


def is_configuration(path: str) -> bool:
    """Whether a file steers the programs that check a change."""
    return _CONFIGURATION.fullmatch(path.rpartition("/")[2]) is not None


def is_test(path: str) -> bool:
    return _TEST.search(path) is not None


def is_ci(path: str) -> bool:
    """Whether a file tells a forge what to run."""
    return _CI.fullmatch(path) is not None


def find_scripts(
    files: Mapping[str, TreeEntry], read: Callable[[str], bytes], commands: Iterable[Sequence[str]]
) -> frozenset[str]:
    """The scripts that are run: those for CI, those that a command names, and those that they name in turn."""
    named = (word for command in commands for word in command)
    found = {path for path in files if path.startswith(SCRIPTS)}
    found.update(path for path in map(_plain, named) if path in files and _is_script(path, files[path]))
    waiting = sorted(found)
    while waiting:
        script = waiting.pop()
        if not files[script].is_file:
            continue
        text = decoded(read(script)[:_LONGEST])
        for word in _WORD.findall(text):
            for path in (_plain(word), _plain(posixpath.join(posixpath.dirname(script), word))):
                if path in files and path not in found and _is_script(path, files[path]):
                    found.add(path)
                    waiting.append(path)
    return frozenset(found)


def _is_script(path: str, entry: TreeEntry) -> bool:
    return entry.mode == PROGRAM or path.endswith((".sh", ".bash"))


def _plain(path: str) -> str:
    return posixpath.normpath(path)


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
