"""Which checks and files decide about a change, and what the change does to them."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.projects.discovery.facts import read_facts
from ratchet.protocols.qa.findings import FindingSeverity, QaFinding
from ratchet.workspaces import Repository, TreeChange, TreeEntry
from ratchet.workspaces.trees import PROGRAM


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
        text = read(script)[:_LONGEST].decode("utf-8", "replace")
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
