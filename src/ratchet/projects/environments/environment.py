"""The environment of a project: its recipe, its Python, and how it looks from a checkout.

While it was made, the project was checked out at `tree`. That path is in what was installed: in the import paths of an
editable package, in programs, in links. So a check sees its candidate at that very path. An author works in a workspace
with a path of its own, sees that at `tree` as well, and imports from the workspace.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ratchet.kernel import Misuse, RatchetError, decoded
from ratchet.programs import TookTooLong, run_program
from ratchet.projects.discovery import ProjectFacts, read_facts
from ratchet.workspaces import Repository

_LINES = 20


class SetupFailed(RatchetError):
    """A command of a project's set-up failed. `output` is the end of what it printed."""

    http_status = 409

    def __init__(self, argv: Sequence[str], why: str, output: str, *, hint: str | None = None) -> None:
        self.argv = tuple(argv)
        self.output = tail(output)
        said = "".join(f"\n  {line}" for line in self.output.splitlines())
        super().__init__(f"setting up the project failed: `{shlex.join(argv)}` {why}{said}", hint=hint)


def tail(text: str, most: int = _LINES) -> str:
    """The last lines that say something."""
    lines = [line.rstrip()[:500] for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-most:])


_FILE = "environment.json"
TREE, LEFT, VENV, TOOLS, NODE_TOOLS, STORE = "tree", "left", "venv", "tools", "node-tools", "store"
CACHE = ".cache"
_SYSTEM = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Environment:
    """What a set-up has made. `commands` were run, and `notes` say what did not work and was done without.

    Left in the checkout were `directories` of packages, which are only read; `outputs`, directories of what was built,
    which those who build again write; and `files`. `ignored` are those of the outputs and files that git does not see.
    `caches` are empty directories among the packages that tools of Node write to. `imports` are directories of the
    project that Python imports from.
    """

    directory: Path
    variables: Mapping[str, str]
    programs: Sequence[str] = ()
    readable: Sequence[str] = ()
    directories: Sequence[str] = ()
    outputs: Sequence[str] = ()
    files: Sequence[str] = ()
    ignored: Sequence[str] = ()
    caches: Sequence[str] = ()
    imports: Sequence[str] = ()
    commands: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    seconds: float = 0.0
    python: str | None = field(default=None)

    @property
    def tree(self) -> Path:
        return self.directory / TREE

    @property
    def shown(self) -> tuple[Path, ...]:
        """What a sandbox must be able to read."""
        return (self.directory, *(path for path in map(Path, self.readable) if path.exists()))

    @property
    def mounts(self) -> dict[str, Path]:
        """The directories of packages that a checkout lacks, and where they are."""
        return {path: self.directory / LEFT / path for path in self.directories}

    @property
    def copies(self) -> dict[str, Path]:
        """What else a checkout lacks, and where it is."""
        return {path: self.directory / LEFT / path for path in (*self.outputs, *self.files)}

    def variables_at(self, place: Path, *, path: str = _SYSTEM) -> dict[str, str]:
        """The environment variables for work in a checkout at `place`; `path` is what else is searched for programs."""
        own = [str(place / "node_modules" / ".bin")] if "node_modules" in self.directories else []
        variables = {**self.variables, "PATH": ":".join([*own, *self.programs, path])}
        if place != self.tree and self.imports:
            variables["PYTHONPATH"] = ":".join(str(place / each) for each in self.imports)
        return variables

    def places_at(self, workspace: Path) -> dict[Path, Path]:
        """What an author's sandbox shows by another path: the workspace, and the directories that it lacks."""
        found = {self.tree: workspace}
        for path in (*self.directories, *(each for each in self.outputs if each not in self.ignored)):
            target = workspace / path
            if not target.exists() or (target.is_dir() and not target.is_symlink() and _is_bare(target)):
                found[target] = self.directory / LEFT / path
        # What tools keep there is the workspace's own, where git does not see it.
        own = [
            workspace / path for path in self.caches if path in self.ignored and stays_inside(workspace, path)
        ]
        return found | {path: path for path in own if path.parent in found}

    def save(self) -> None:
        """Write it into its directory."""
        content = {key: value for key, value in asdict(self).items() if key != "directory"}
        (self.directory / _FILE).write_text(json.dumps(content, indent=1))

    @classmethod
    def load(cls, directory: Path) -> Environment:
        return cls(directory, **json.loads((directory / _FILE).read_text()))


def stays_inside(directory: Path, path: str) -> bool:
    """Whether no part of a path below `directory` is a link, which could lead out of it."""
    return (directory / path).resolve() == directory.resolve() / path


def _is_bare(directory: Path) -> bool:
    return all(each.name == CACHE for each in directory.iterdir())


_ASK = "import json, sys; print(json.dumps(['%d.%d.%d' % sys.version_info[:3], sys.executable, sys.base_prefix]))"
_NEWEST, _OLDEST = 20, 8
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    version: str
    program: str
    prefix: str

    @property
    def identity(self) -> list[str]:
        return [self.version, self.prefix]


def find_interpreter(required: Iterable[str]) -> Interpreter:
    """The first interpreter of this machine that fits what the project says first. Raises `Misuse` if none does."""
    said = next((each for each in map(_specifier, required) if each is not None), SpecifierSet())
    for found in _interpreters():
        if said.contains(found.version, prereleases=True):
            return found
    there = ", ".join(dict.fromkeys(each.version for each in _interpreters()))
    raise Misuse(
        f"the project needs Python {said}, and this machine has {there}",
        hint="install such a Python, so that `python3.X` is on the PATH",
    )


def _specifier(text: str) -> SpecifierSet | None:
    """As packaging reads it, and with the marks that Poetry has."""
    plain = text.replace(" ", "").split("||")[0]
    if plain.startswith("^"):
        plain = f">={plain[1:]},<4"
    elif plain.startswith("~") and not plain.startswith("~="):
        plain = f"~={plain[1:]}.0" if plain.count(".") == 1 else f"~={plain[1:]}"
    elif plain == "*":
        plain = ""
    try:
        return SpecifierSet(plain)
    except InvalidSpecifier:
        return None


def _interpreters() -> Iterator[Interpreter]:
    own = getattr(sys, "_base_executable", None) or sys.executable
    programs = [own]
    for minor in range(_NEWEST, _OLDEST - 1, -1):
        found = shutil.which(f"python3.{minor}", path=os.environ.get("PATH", os.defpath))
        if found is not None:
            programs.append(found)
    for program in programs:
        known = _asked(program)
        if known is not None:
            yield known


@functools.lru_cache(maxsize=64)
def _asked(program: str) -> Interpreter | None:
    try:
        done = run_program([program, "-I", "-c", _ASK], seconds=_SECONDS, cwd="/")
        version, executable, prefix = json.loads(done.stdout)
    except (OSError, ValueError, TookTooLong):
        return None
    return Interpreter(version, executable, prefix)


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
    manifests += sorted(_own_backend(files, read))
    wants_python = bool(needs) or any(_is_python(argv) for argv in known.setup)
    python = find_interpreter(_requires(files, read)) if wants_python else None
    content = [(path, files[path].hash) for path in manifests]
    facts_of_machine = [platform.machine(), platform.libc_ver(), None if python is None else python.identity]
    whole = json.dumps([_VERSION, known.setup, needs, content, facts_of_machine])
    key = hashlib.sha256(whole.encode()).hexdigest()[:32]
    return Recipe(known.setup, needs, known.stack, python, key, known.system_packages)


def _own_backend(files: Mapping[str, Any], read: Any) -> Iterator[str]:
    """The code of a build backend that the project brings itself: installing the project runs it."""
    text = decoded(read("pyproject.toml")) if "pyproject.toml" in files else ""
    said = re.search(r"^backend-path\s*=\s*\[([^\]]*)\]", text, re.MULTILINE)
    for place in re.findall(r"""["']([^"']+)["']""", said[1] if said else ""):
        directory = os.path.normpath(place)
        yield from (
            path
            for path in files
            if Path(path).is_relative_to(directory) or (directory == "." and "/" not in path)
        )


def _needs(facts: ProjectFacts) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check.needs for check in facts.checks if check.needs))


def _is_python(argv: tuple[str, ...]) -> bool:
    words = {"python", "python3", "pip", "uv", "poetry", "pdm", "pipenv", "tox", "nox", "hatch"}
    return any(word in words for word in argv)


def _builds(content: bytes) -> bool:
    return _BUILDS.search(decoded(content)) is not None


def _requires(files: Mapping[str, Any], read: Any) -> Iterator[str]:
    """What the project says of the Python that it runs on, most telling first."""
    if ".python-version" in files:
        lines = decoded(read(".python-version")).split()
        yield from (f"=={line}.*" for line in lines[:1] if re.fullmatch(r"3\.\d+", line))
    for name, pattern in (
        ("pyproject.toml", r"""requires-python\s*=\s*["']([^"']+)["']"""),
        ("pyproject.toml", r"""^python\s*=\s*["']([^"']+)["']"""),
        ("setup.cfg", r"python_requires\s*=\s*(.+)"),
        ("setup.py", r"""python_requires\s*=\s*["']([^"']+)["']"""),
    ):
        if name in files:
            found = re.search(pattern, decoded(read(name)), re.MULTILINE)
            if found:
                yield found[1].strip()
