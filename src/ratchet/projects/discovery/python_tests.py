"""Which tests a Python project has, and what runs them."""

from __future__ import annotations

import fnmatch

from ratchet.projects.discovery.facts import Check
from ratchet.projects.discovery.tree import Tree

_DEEPEST = 6
_MOST_READ = 20
_PATTERNS = ("test_*.py", "*_test.py")


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
