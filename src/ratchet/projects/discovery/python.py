"""Python: its tests, its linters, its type checkers, and how an environment for them is filled."""

from __future__ import annotations

import re
from typing import Any

from ratchet.projects.discovery.facts import Check
from ratchet.projects.discovery.found import Argv, Found
from ratchet.projects.discovery.python_needs import Needs, read_needs
from ratchet.projects.discovery.python_tests import declared_tests, find_tests
from ratchet.projects.discovery.tree import Tree, table

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


def look(tree: Tree) -> Found | None:
    """What a Python project has; nothing if there is no Python at the top of `tree`."""
    names = tree.names()
    if not any(name in MANIFESTS or name.endswith(".py") for name in names) and not _has_tests(tree):
        return None
    described = _Described(tree)
    tests = find_tests(tree, described.names_pytest) or described.declared_tests()
    checks = [*tests, *described.linters(), *described.types()]
    return Found(
        "python",
        tuple(checks),
        (*described.test_runners(checks), *described.pyright(), *described.build()),
        described.setup(),
    )


def _has_tests(tree: Tree) -> bool:
    return any(name.endswith(".py") for folder in ("tests", "test") for name in tree.names(folder))


class _Described:
    """What the settings of a Python project say. Each tool keeps them in one of several files."""

    def __init__(self, tree: Tree) -> None:
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

    def linters(self) -> list[Check]:
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

    def types(self) -> list[Check]:
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

    def declared_tests(self) -> list[Check]:
        return declared_tests(self._tree, self._project)

    def pyright(self) -> list[Check]:
        """It fetches its own program at the first start."""
        return [_check("pyright", "types", "pyright")] if self._uses("pyright", "pyrightconfig.json") else []

    def test_runners(self, found: list[Check]) -> list[Check]:
        """Runners that make environments of their own, where what they run is not told plainly."""
        if any(check.kind == "test" for check in found):
            return []
        if "tox" in self._tox or "tox" in self._tools or self._tree.has("tox.toml"):
            return [_check("tox", "test", "tox")]
        return [_check("nox", "test", "nox")] if self._tree.has("noxfile.py") else []

    def build(self) -> list[Check]:
        if not self._is_package:
            return []
        argv = (*_MODULE, "pip", "wheel", "--no-deps", "--wheel-dir", "dist", ".")
        return [Check("wheel", argv, "build")]

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


def _check(name: str, kind: Any, module: str, *words: str) -> Check:
    return Check(name, (*_MODULE, module, *words), kind, needs=module)


def _hooks(tree: Tree) -> set[str]:
    """The hooks of pre-commit, by their ids; they tell which tools the project uses."""
    text = tree.text(".pre-commit-config.yaml") or ""
    return set(re.findall(r"^[ \t]*-[ \t]*id:[ \t]*[\"']?([\w-]+)", text, re.MULTILINE))
