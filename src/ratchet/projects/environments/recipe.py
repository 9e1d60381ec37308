"""What makes the environment of a project: the commands, and what they read. The same recipe, the same environment."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.projects.discovery import Facts, read_facts
from ratchet.projects.environments.interpreter import Interpreter, find_interpreter
from ratchet.workspaces import Repository

_VERSION = 2
# What an installer reads. Sources of extension modules are built by it.
_MANIFEST = re.compile(
    r"""(?:.*/)?(?:
        pyproject\.toml | setup\.(?:py|cfg) | tox\.(?:ini|toml) | noxfile\.py | Pipfile(?:\.lock)? | MANIFEST\.in
        | (?:[\w-]*[-_])?(?:requirements|constraints)(?:[-_.][\w-]+)*\.(?:txt|in) | (?:uv|poetry|pdm)\.lock
        | \.python-version | package\.json | package-lock\.json | npm-shrinkwrap\.json | yarn\.lock | \.yarnrc(?:\.yml)?
        | pnpm-lock\.yaml | pnpm-workspace\.yaml | bun\.lockb? | \.npmrc | \.nvmrc | Cargo\.(?:toml|lock)
        | rust-toolchain(?:\.toml)? | go\.(?:mod|sum|work) | pom\.xml | (?:build|settings)\.gradle(?:\.kts)?
        | [^/]*\.(?:pyx|pxd)
    ) | (?:requirements|scripts/ci)/.+""",
    re.VERBOSE,
)
_NATIVE = re.compile(r".*\.(?:c|cc|cpp|h|hpp|rs)")
_BUILDS = re.compile(r"ext_modules|Extension\(|maturin|cffi_modules|setuptools-rust|scikit-build|mesonpy")


@dataclass(frozen=True, slots=True)
class Recipe:
    """`needs` are distributions that checks run, `system_packages` what CI installs; `key` names the environment."""

    setup: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...]
    stack: tuple[str, ...]
    python: Interpreter | None
    key: str
    system_packages: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands as a person would type them."""
        wanted = [f"python3 -m pip install {each}    # if it is missing" for each in self.needs]
        return (*map(shlex.join, self.setup), *wanted)


def recipe_of(repository: Repository, commit: str, facts: Mapping[str, Any]) -> Recipe | None:
    """The recipe for a commit; nothing for a project that needs no environment.

    Raises `Misuse` when there is no interpreter that the project accepts.
    """
    known = read_facts(facts)
    needs = _needs(known)
    if not known.setup and not needs:
        return None
    files = repository.list_files(commit)
    read = functools.partial(repository.read_file, commit)
    manifests = sorted(path for path, entry in files.items() if entry.is_file and _MANIFEST.fullmatch(path))
    if any(_builds(read(path)) for path in manifests if path.endswith(("setup.py", "pyproject.toml"))):
        manifests += sorted(path for path in files if _NATIVE.fullmatch(path))
    wants_python = bool(needs) or any(_is_python(argv) for argv in known.setup)
    python = find_interpreter(_requires(files, read)) if wants_python else None
    content = [(path, files[path].hash) for path in manifests]
    facts_of_machine = [platform.machine(), platform.libc_ver(), None if python is None else python.identity]
    whole = json.dumps([_VERSION, known.setup, needs, content, facts_of_machine])
    key = hashlib.sha256(whole.encode()).hexdigest()[:32]
    return Recipe(known.setup, needs, known.stack, python, key, known.system_packages)


def _needs(facts: Facts) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check.needs for check in facts.checks if check.needs))


def _is_python(argv: tuple[str, ...]) -> bool:
    words = {"python", "python3", "pip", "uv", "poetry", "pdm", "pipenv", "tox", "nox", "hatch"}
    return any(word in words for word in argv)


def _builds(content: bytes) -> bool:
    return _BUILDS.search(content.decode("utf-8", "replace")) is not None


def _requires(files: Mapping[str, Any], read: Any) -> Iterator[str]:
    """What the project says of the Python that it runs on, most telling first."""
    if ".python-version" in files:
        lines = read(".python-version").decode("utf-8", "replace").split()
        yield from (f"=={line}.*" for line in lines[:1] if re.fullmatch(r"3\.\d+", line))
    for name, pattern in (
        ("pyproject.toml", r"""requires-python\s*=\s*["']([^"']+)["']"""),
        ("pyproject.toml", r"""^python\s*=\s*["']([^"']+)["']"""),
        ("setup.cfg", r"python_requires\s*=\s*(.+)"),
        ("setup.py", r"""python_requires\s*=\s*["']([^"']+)["']"""),
    ):
        if name in files:
            found = re.search(pattern, read(name).decode("utf-8", "replace"), re.MULTILINE)
            if found:
                yield found[1].strip()
