"""Which distributions a Python project names, and where."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ratchet.projects.discovery.provider import workflow_files
from ratchet.projects.discovery.tree import Tree, table

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


def read_needs(tree: Tree, project: dict[str, Any]) -> Needs:
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


def _tox(tree: Tree, project: dict[str, Any]) -> list[str]:
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


def _installed_elsewhere(tree: Tree) -> Iterator[str]:
    """The plain requirements that CI and a Dockerfile install with pip, and extras of the project as `.[extra]`."""
    for path in (*workflow_files(tree), ".gitlab-ci.yml", "Dockerfile"):
        for line in _INSTALL.findall(tree.text(path) or ""):
            words = [each.strip("\"'") for each in line.split()]
            for before, word in zip(["", *words], words, strict=False):
                if extras := _OF_PROJECT.fullmatch(word):
                    yield from (f".[{extra}]" for extra in extras[1].split(","))
                elif before not in _TAKES_ONE and _REQUIREMENT.fullmatch(word) and word.lower() not in _OF_CI:
                    yield word


def _files(tree: Tree) -> Iterator[str]:
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
