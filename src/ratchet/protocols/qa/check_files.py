"""Which files of a repository decide about its changes.

Scripts are what is run, so the base's own are run: a change cannot bring its own judge. Configuration steers what is
run. A change may well need its own, as tests need a fixture, so it is used, but the reviewer is told.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ratchet.workspaces import Entry
from ratchet.workspaces.trees import PROGRAM

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
    files: Mapping[str, Entry], read: Callable[[str], bytes], commands: Iterable[Sequence[str]]
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


def _is_script(path: str, entry: Entry) -> bool:
    return entry.mode == PROGRAM or path.endswith((".sh", ".bash"))


def _plain(path: str) -> str:
    return posixpath.normpath(path)
