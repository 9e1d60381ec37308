"""Python: its tests, linters and type checkers, and how an environment for them is filled."""

from __future__ import annotations

import ast
import fnmatch
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ratchet.projects.discovery.ci import workflow_files
from ratchet.projects.discovery.facts import Argv, ProjectCheck, StackFindings
from ratchet.projects.discovery.tree import SourceTree, table

_DEEPEST = 6
_MOST_READ = 20
_PATTERNS = ("test_*.py", "*_test.py")
_MOST_COMMANDS = 3
_POSARGS = re.compile(r"\{posargs:?([^{}]*)\}")
_IN_TOX = {"{envpython}": "python3", "{toxinidir}": ".", "{tox_root}": "."}


def find_tests(tree: SourceTree, names_pytest: bool) -> list[ProjectCheck]:
    """pytest if the project names it or its tests look like it, else unittest. Nothing without a test file.

    Both end with an error when they find no test, so a project that only means to have some gets no check yet.
    """
    files = [path for path in tree.walk(_DEEPEST) if _is_test(path)]
    if not files:
        if names_pytest:
            tree.note("pytest is set up, but no test file was found")
        return []
    if names_pytest or not _is_unittest(tree, files):
        return [ProjectCheck("pytest", ("python3", "-m", "pytest"), "test", needs="pytest")]
    return [ProjectCheck("unittest", ("python3", "-m", "unittest", "discover", *_start(tree)), "test")]


def _is_test(path: str) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _PATTERNS)


def _is_unittest(tree: SourceTree, files: list[str]) -> bool:
    texts = [tree.text(path) or "" for path in files[:_MOST_READ]]
    return any("unittest" in text for text in texts) and not any("pytest" in text for text in texts)


def _start(tree: SourceTree) -> tuple[str, ...]:
    for folder in ("tests", "test"):
        if tree.has_directory(folder):
            # Tests in a package are imported by their full name, from the top.
            return ("-s", folder, "-t", ".") if tree.has(f"{folder}/__init__.py") else ("-s", folder)
    return ()


def declared_tests(tree: SourceTree, project: dict[str, Any]) -> list[ProjectCheck]:
    """What tox or nox runs for tests, for an environment that has what they would install. Only plain commands."""
    for runner, commands in (
        ("tox", [*_tox_commands(tree, project)]),
        ("nox", [*_nox_commands(tree.text("noxfile.py") or "")]),
    ):
        if commands:
            return [
                ProjectCheck(f"{runner}-{number}" if number else runner, argv, "test")
                for number, argv in enumerate(commands[:_MOST_COMMANDS])
            ]
    return []


def _tox_commands(tree: SourceTree, project: dict[str, Any]) -> Iterator[Argv]:
    lines = re.sub(r"\\\n\s*", " ", tree.ini("tox.ini").get("testenv", {}).get("commands", "")).splitlines()
    for base in (tree.toml("tox.toml"), table(project, "tool", "tox")):
        listed = table(base, "env_run_base").get("commands")
        for words in listed if isinstance(listed, list) else []:
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                lines.append(shlex.join(words).replace("'", ""))
    for line in lines:
        plain = _POSARGS.sub(lambda found: found[1], line.strip().removeprefix("-"))
        for name, value in _IN_TOX.items():
            plain = plain.replace(name, value)
        try:
            words = shlex.split(plain)
        except ValueError:
            continue
        if words and not re.search(r"[{}$|<>]", plain):
            yield tuple(words)


def _nox_commands(text: str) -> Iterator[Argv]:
    """The commands of the sessions for tests. What is given on the command line is left out."""
    try:
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError):
        return
    for function in functions:
        for node in ast.walk(function) if "test" in function.name else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            others = [each for each in node.args if not isinstance(each, ast.Constant | ast.Starred)]
            if node.func.attr == "run" and words and not others:
                yield tuple(word for word in words if isinstance(word, str))


_FOR_WORK = frozenset(
    {"ci", "check", "checks", "dev", "develop", "development", "lint", "linting", "qa", "test", "testing"}
    | {"tests", "type", "types", "typing"}
)
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?\s*(?:[<>=!~]=?[\w.*,<>=!~ ]+)?")
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_OTHER_WORK = re.compile(
    r"(?:^|[-_/.])(?:docs?|build|bench\w*|release|publish|deploy|prod\w*|gpu)(?:[-_.]|$)"
)
_INSTALL = re.compile(r"\bpip3? install\s+([^\n&|;#]+)")
_TAKES_ONE = frozenset(
    {"-c", "-f", "-i", "-r", "--constraint", "--extra-index-url", "--find-links", "--group"}
    | {"--index-url", "--requirement"}
)
_OF_PROJECT = re.compile(r"\.\[([\w,-]+)\]")
# What CI installs for itself rather than for the tests.
_OF_CI = frozenset(
    {"build", "codecov", "coveralls", "hatch", "nox", "pip", "setuptools", "tox", "twine", "uv", "wheel"}
)
_REQUIREMENTS = re.compile(r"(?:[\w-]*[-_])?requirements(?:[-_.][\w-]+)*\.txt")


@dataclass(frozen=True, slots=True)
class Needs:
    """`names` are those of distributions, in small letters with dashes; the others are what pip can be asked for."""

    names: frozenset[str]
    plain: tuple[str, ...] = ()
    """What a project that is no package lists as its dependencies."""
    files: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tested_with: tuple[str, ...] = ()
    """What tox or nox installs for the tests; where nothing else names any, what CI or a Dockerfile installs."""


def read_needs(tree: SourceTree, project: dict[str, Any]) -> Needs:
    files = tuple(_files(tree))
    extras, groups = table(project, "project", "optional-dependencies"), table(project, "dependency-groups")
    plain = _lines(table(project, "project").get("dependencies"))
    said = [line for name in files for line in (tree.text(name) or "").splitlines()]
    said += plain
    said += [line for listed in (*extras.values(), *groups.values()) for line in _lines(listed)]
    said += _poetry(table(project, "tool", "poetry"))
    for_work = [name for name in extras if name.lower() in _FOR_WORK and _PLAIN.fullmatch(name)]
    named_groups = tuple(name for name in groups if name.lower() in _FOR_WORK and _PLAIN.fullmatch(name))
    tested_with = tuple(dict.fromkeys((*_tox(tree, project), *_nox(tree.text("noxfile.py") or ""))))
    if not (files or for_work or named_groups or tested_with):
        installed = list(_installed_elsewhere(tree))
        for_work = [name for name in extras if f".[{name}]" in installed]
        tested_with = tuple(each for each in dict.fromkeys(installed) if not each.startswith("."))
    said += tested_with
    pipfile = tree.toml("Pipfile")
    said += [*table(pipfile, "packages"), *table(pipfile, "dev-packages")]
    named = (_NAME.match(line) for line in said)
    return Needs(
        frozenset(re.sub(r"[-_.]+", "-", match[1]).lower() for match in named if match),
        tuple(line for line in plain if _NAME.match(line)),
        files,
        tuple(for_work),
        named_groups,
        tested_with,
    )


def _tox(tree: SourceTree, project: dict[str, Any]) -> list[str]:
    """The plain requirements of tox's usual environment; those for some of its environments only are left out."""
    text = tree.ini("tox.ini").get("testenv", {}).get("deps", "")
    lines = [*text.splitlines(), *_lines(table(project, "tool", "tox", "env_run_base").get("deps"))]
    return [line.strip() for line in lines if _REQUIREMENT.fullmatch(line.strip())]


def _nox(text: str) -> list[str]:
    """The plain requirements that sessions for tests install."""
    try:
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError):
        return []
    calls = (
        node
        for function in functions
        if "test" in function.name
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "install"
    )
    words = (each.value for call in calls for each in call.args if isinstance(each, ast.Constant))
    return [word for word in words if isinstance(word, str) and _REQUIREMENT.fullmatch(word)]


def _installed_elsewhere(tree: SourceTree) -> Iterator[str]:
    """The plain requirements that CI and a Dockerfile install with pip, and extras of the project as `.[extra]`."""
    for path in (*workflow_files(tree), ".gitlab-ci.yml", "Dockerfile"):
        for line in _INSTALL.findall(tree.text(path) or ""):
            words = [each.strip("\"'") for each in line.split()]
            for before, word in zip(["", *words], words, strict=False):
                if extras := _OF_PROJECT.fullmatch(word):
                    yield from (f".[{extra}]" for extra in extras[1].split(","))
                elif before not in _TAKES_ONE and _REQUIREMENT.fullmatch(word) and word.lower() not in _OF_CI:
                    yield word


def _files(tree: SourceTree) -> Iterator[str]:
    """Files of requirements, without those for documents, releases and the like."""
    names = [name for name in tree.names() if _REQUIREMENTS.fullmatch(name)]
    names += [
        f"requirements/{name}" for name in tree.names("requirements") if re.fullmatch(r"[\w-]+\.txt", name)
    ]
    yield from (name for name in names if tree.has(name) and not _OTHER_WORK.search(name))


def _poetry(poetry: dict[str, Any]) -> list[str]:
    """Poetry's own tables, in which a dependency is a key."""
    groups = [table(group, "dependencies") for group in table(poetry, "group").values()]
    return [
        name
        for listed in (table(poetry, "dependencies"), table(poetry, "dev-dependencies"), *groups)
        for name in listed
    ]


def _lines(listed: Any) -> list[str]:
    return [line for line in listed if isinstance(line, str)] if isinstance(listed, list) else []


MANIFESTS = (
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "tox.ini",
    "noxfile.py",
    "Pipfile",
    "requirements.txt",
)
_MODULE = ("python3", "-m")
_PIP = (*_MODULE, "pip", "install")


def look_for_python(tree: SourceTree) -> StackFindings | None:
    """What a Python project has; nothing if there is no Python at the top of `tree`."""
    names = tree.names()
    if not any(name in MANIFESTS or name.endswith(".py") for name in names) and not _has_tests(tree):
        return None
    described = _Described(tree)
    tests = find_tests(tree, described.names_pytest) or described.declared_tests()
    checks = [*tests, *described.linters(), *described.types()]
    return StackFindings(
        "python",
        tuple(checks),
        (*described.test_runners(checks), *described.pyright(), *described.build()),
        described.setup(),
    )


def _has_tests(tree: SourceTree) -> bool:
    return any(name.endswith(".py") for folder in ("tests", "test") for name in tree.names(folder))


class _Described:
    """What the settings of a Python project say. Each tool keeps them in one of several files."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._project = tree.toml("pyproject.toml")
        self._tools = table(self._project, "tool")
        self._setup_cfg = tree.ini("setup.cfg")
        self._tox = tree.ini("tox.ini")
        self._needs: Needs = read_needs(tree, self._project)
        self._hooks = _hooks(tree)

    @property
    def names_pytest(self) -> bool:
        return (
            "pytest" in self._needs.names
            or "pytest" in self._tools
            or "tool:pytest" in self._setup_cfg
            or "pytest" in self._tox
            or any(
                self._tree.has(name) for name in ("pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py")
            )
        )

    def linters(self) -> list[ProjectCheck]:
        checks = []
        if self._uses("ruff", "ruff.toml", ".ruff.toml"):
            checks.append(_check("ruff", "lint", "ruff", "check", "."))
        if self._uses("flake8", ".flake8") or "flake8" in self._setup_cfg or "flake8" in self._tox:
            checks.append(_check("flake8", "lint", "flake8"))
        if "format" in table(self._tools, "ruff") or "ruff-format" in self._hooks:
            checks.append(_check("ruff-format", "format", "ruff", "format", "--check", "."))
        if "black" in self._tools or "black" in self._hooks:
            checks.append(_check("black", "format", "black", "--check", "."))
        return checks

    def types(self) -> list[ProjectCheck]:
        if not self._uses("mypy", "mypy.ini", ".mypy.ini") and "mypy" not in self._setup_cfg:
            return []
        said: dict[str, Any] = {
            **table(self._tools, "mypy"),
            **self._setup_cfg.get("mypy", {}),
            **self._tree.ini("mypy.ini").get("mypy", {}),
            **self._tree.ini(".mypy.ini").get("mypy", {}),
        }
        told = any(key in said for key in ("files", "packages", "modules"))
        return [_check("mypy", "types", "mypy", *(() if told else (".",)))]

    def declared_tests(self) -> list[ProjectCheck]:
        return declared_tests(self._tree, self._project)

    def pyright(self) -> list[ProjectCheck]:
        """It fetches its own program at the first start."""
        return [_check("pyright", "types", "pyright")] if self._uses("pyright", "pyrightconfig.json") else []

    def test_runners(self, found: list[ProjectCheck]) -> list[ProjectCheck]:
        """Runners that make environments of their own, where what they run is not told plainly."""
        if any(check.kind == "test" for check in found):
            return []
        if "tox" in self._tox or "tox" in self._tools or self._tree.has("tox.toml"):
            return [_check("tox", "test", "tox")]
        return [_check("nox", "test", "nox")] if self._tree.has("noxfile.py") else []

    def build(self) -> list[ProjectCheck]:
        if not self._is_package:
            return []
        argv = (*_MODULE, "pip", "wheel", "--no-deps", "--wheel-dir", "dist", ".")
        return [ProjectCheck("wheel", argv, "build")]

    def setup(self) -> tuple[Argv, ...]:
        """The commands that fill an environment, by the lock file that the project keeps."""
        if self._tree.has("uv.lock"):
            # Not exact: uv itself may lie in the environment that it fills.
            groups = [word for group in self._needs.groups for word in ("--group", group)]
            sync = ("uv", "sync", "--frozen", "--inexact", "--active", "--all-extras")
            return ((*_PIP, "uv"), (*sync, *(groups or ["--all-groups"])))
        if self._tree.has("poetry.lock") or self._is_poetry:
            return ((*_PIP, "poetry"), ("poetry", "install", "--no-interaction", "--all-extras"))
        if self._tree.has("pdm.lock"):
            return ((*_PIP, "pdm"), ("pdm", "install", "--frozen-lockfile", "-G", ":all"))
        if self._tree.has("Pipfile.lock"):
            return ((*_PIP, "pipenv"), ("pipenv", "sync", "--dev"))
        return self._pip()

    def _pip(self) -> tuple[Argv, ...]:
        words = [word for file in self._needs.files for word in ("-r", file)]
        if self._is_package:
            extras = ",".join(self._needs.extras)
            words += ["-e", f".[{extras}]" if extras else "."]
        else:
            words += self._needs.plain
        words += [word for group in self._needs.groups for word in ("--group", group)]
        words += self._needs.tested_with
        if not words:
            return ()
        newer: tuple[Argv, ...] = ((*_PIP, "--upgrade", "pip>=25.1"),) if self._needs.groups else ()
        return (*newer, (*_PIP, *words))

    @property
    def _is_poetry(self) -> bool:
        """Whether what is needed for work stands in Poetry's own tables, which pip does not read."""
        poetry = table(self._tools, "poetry")
        return "dev-dependencies" in poetry or "group" in poetry

    @property
    def _is_package(self) -> bool:
        return "build-system" in self._project or self._tree.has("setup.py")

    def _uses(self, tool: str, *files: str) -> bool:
        return (
            tool in self._tools
            or tool in self._needs.names
            or tool in self._hooks
            or any(self._tree.has(name) for name in files)
        )


def _check(name: str, kind: Any, module: str, *words: str) -> ProjectCheck:
    return ProjectCheck(name, (*_MODULE, module, *words), kind, needs=module)


def _hooks(tree: SourceTree) -> set[str]:
    """The hooks of pre-commit, by their ids; they tell which tools the project uses."""
    text = tree.text(".pre-commit-config.yaml") or ""
    return set(re.findall(r"^[ \t]*-[ \t]*id:[ \t]*[\"']?([\w-]+)", text, re.MULTILINE))
