"""Which tests a Python project has, and what runs them."""

from __future__ import annotations

import ast
import fnmatch
import re
import shlex
from collections.abc import Iterator
from typing import Any

from ratchet.projects.discovery.facts import Check
from ratchet.projects.discovery.found import Argv
from ratchet.projects.discovery.tree import Tree, table

_DEEPEST = 6
_MOST_READ = 20
_PATTERNS = ("test_*.py", "*_test.py")
_MOST_COMMANDS = 3
_POSARGS = re.compile(r"\{posargs:?([^{}]*)\}")
_IN_TOX = {"{envpython}": "python3", "{toxinidir}": ".", "{tox_root}": "."}


def find_tests(tree: Tree, names_pytest: bool) -> list[Check]:
    """pytest if the project names it or its tests look like it, else unittest. Nothing without a test file.

    Both end with an error when they find no test, so a project that only means to have some gets no check yet.
    """
    files = [path for path in tree.walk(_DEEPEST) if _is_test(path)]
    if not files:
        if names_pytest:
            tree.note("pytest is set up, but no test file was found")
        return []
    if names_pytest or not _is_unittest(tree, files):
        return [Check("pytest", ("python3", "-m", "pytest"), "test", needs="pytest")]
    return [Check("unittest", ("python3", "-m", "unittest", "discover", *_start(tree)), "test")]


def _is_test(path: str) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _PATTERNS)


def _is_unittest(tree: Tree, files: list[str]) -> bool:
    texts = [tree.text(path) or "" for path in files[:_MOST_READ]]
    return any("unittest" in text for text in texts) and not any("pytest" in text for text in texts)


def _start(tree: Tree) -> tuple[str, ...]:
    for folder in ("tests", "test"):
        if tree.has_directory(folder):
            # Tests in a package are imported by their full name, from the top.
            return ("-s", folder, "-t", ".") if tree.has(f"{folder}/__init__.py") else ("-s", folder)
    return ()


def declared_tests(tree: Tree, project: dict[str, Any]) -> list[Check]:
    """What tox or nox runs for tests, for an environment that has what they would install. Only plain commands."""
    for runner, commands in (
        ("tox", [*_tox(tree, project)]),
        ("nox", [*_nox(tree.text("noxfile.py") or "")]),
    ):
        if commands:
            return [
                Check(f"{runner}-{number}" if number else runner, argv, "test")
                for number, argv in enumerate(commands[:_MOST_COMMANDS])
            ]
    return []


def _tox(tree: Tree, project: dict[str, Any]) -> Iterator[Argv]:
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


def _nox(text: str) -> Iterator[Argv]:
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
