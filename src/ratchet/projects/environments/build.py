"""Making an environment: a checkout of the project, and its set-up run in it.

A set-up runs code of others, so all of it happens in the sandbox: with the network, which it needs, and with no file of
the user but those that say where packages come from. Of the repository it sees one commit, with the tags and the
commits before it: never another branch, a stash, the home, the configuration of git, or what was not committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ratchet.config.workflow_settings import Projects
from ratchet.environments import Busy, find, find_or_make, forget, named_files, source_variables
from ratchet.files import discard
from ratchet.kernel import Misuse, decoded, last_line
from ratchet.projects.discovery import SourceTree, inside, manager_package, unmoved
from ratchet.projects.environments.environment import (
    CACHE,
    LEFT,
    NODE_TOOLS,
    STORE,
    TOOLS,
    TREE,
    VENV,
    Environment,
    Recipe,
    SetupFailed,
    recipe_of,
)
from ratchet.projects.environments.imports import used_by_tests
from ratchet.projects.environments.packages import (
    NODE_MANAGERS,
    PYTHON_MANAGERS,
    Programs,
    find_programs,
    how_to_install,
    how_to_reach,
    make_do,
    missing_packages,
    python_package,
    weaker,
)
from ratchet.sandbox import (
    Bounds,
    Broken,
    CannotStart,
    Finished,
    IsolationRefused,
    Policy,
    Running,
    Stopped,
    start,
)
from ratchet.workspaces import Repository, find_git
from ratchet.workspaces.directories import remove_tree
from ratchet.workspaces.git import run_git
from ratchet.workspaces.repository import find_repository

Tell = Callable[[str], None]
"""Is told each command before it runs, or, now and then, the last line that one has printed."""
# Less than what a command that waits may be silent for.
_HEAR_SECONDS = 3.0

_PIP = ("python3", "-m", "pip", "install")
_PASSED_ON = (
    *("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS", "UV_NATIVE_TLS"),
    *(
        "UV_SYSTEM_CERTS",
        "UV_PYTHON_INSTALL_MIRROR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
    ),
    *(
        "npm_config_registry",
        "NPM_CONFIG_REGISTRY",
        "YARN_REGISTRY",
        "YARN_NPM_REGISTRY_SERVER",
        "CARGO_HTTP_CAINFO",
        "GOPROXY",
        "GONOSUMDB",
    ),
    *("GOPRIVATE", "GOSUMDB", "GIT_SSL_CAINFO"),
)
_MISSING = (
    "import importlib.util, json, sys\n"
    "print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))"
)
# What a set-up writes besides the checkout. Not their parent: what we write there must be ours, and no link of others.
_WRITTEN = (VENV, TOOLS, NODE_TOOLS, STORE, "tmp")
# The repository of the checkout as it was before others could write its settings: git would run what these name.
_GIT = "git"
# Compilers make `target` again: what a change removed must not be found in it.
_NOT_LEFT = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git", "target"})
_PACKAGES = frozenset({"node_modules", ".yarn", ".venv", "venv", ".tox", ".nox", "vendor", "__pypackages__"})
_BUILT = (".so", ".pyd", ".node")
_LARGEST_LOCK = 8 * 1024 * 1024
_GIB = 1024**3


async def build(
    directory: Path,
    recipe: Recipe,
    repository: Repository,
    commit: str,
    *,
    seconds: float,
    tell: Tell,
    hear: Tell,
) -> None:
    """Make the environment at `directory`, which must not exist. Raises `SetupFailed`; what it made stays there.

    `tell` is told each command, and `hear` what it prints while it runs.
    """
    began = time.monotonic()
    (directory / "tmp").mkdir(parents=True, mode=0o700)
    await asyncio.to_thread(_check_out, repository.path, commit, directory / TREE)
    await asyncio.to_thread(shutil.copytree, directory / TREE / ".git", directory / _GIT)
    for name in _WRITTEN:
        (directory / name).mkdir(exist_ok=True)
    programs = find_programs(argv[0] for argv in recipe.setup)
    hidden = (repository.path, directory)
    work = _Work(directory, recipe, hidden, programs, began + seconds, seconds, tell, hear)
    if recipe.python is not None:
        await work.need([recipe.python.program, "-I", "-m", "venv", str(directory / VENV)])
    if "rust" in recipe.stack:
        _copy_cargo_settings(directory / STORE / "cargo")
    for argv in recipe.setup:
        await work.set_up(argv)
    if recipe.python is not None:
        await work.bring({each.replace("-", "_"): each for each in recipe.needs}, needed=True)
        read = functools.partial(repository.read_file, commit)
        await work.bring(used_by_tests(repository.list_files(commit), read), needed=False)
    left = _take_out(directory)
    for name in ("tmp", _GIT):
        discard(directory / name)
    Environment(
        directory,
        variables=work.variables(offline=True),
        programs=work.places,
        readable=work.readable,
        directories=left.packages,
        outputs=left.outputs,
        files=left.files,
        ignored=left.ignored,
        caches=left.caches,
        imports=sorted(set(_imports(directory))),
        commands=work.commands,
        notes=work.notes,
        seconds=round(time.monotonic() - began, 1),
        python=None if recipe.python is None else recipe.python.version,
    ).save()


@dataclass
class _Work:
    """One environment while it is made."""

    directory: Path
    recipe: Recipe
    hidden: tuple[Path, ...]
    programs: Programs
    until: float
    seconds: float
    tell: Tell
    hear: Tell
    commands: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def places(self) -> list[str]:
        own = [
            self.directory / VENV / "bin",
            self.directory / TOOLS / "bin",
            self.directory / NODE_TOOLS / "bin",
        ]
        return [*(str(path) for path in own if path.is_dir()), *self.programs.places]

    @property
    def installations(self) -> list[str]:
        """Where Python and Rust have their libraries, if that is not among the system's own."""
        python = self.recipe.python
        found = [] if python is None or Path(python.prefix).is_relative_to("/usr") else [python.prefix]
        rust = self.variables(offline=True).get("RUSTUP_HOME")
        return found if rust is None else [*found, rust]

    @property
    def readable(self) -> list[str]:
        """What programs read, but for an installation that the repository or the home lies in."""
        hidden = [each.resolve() for each in self.hidden]
        found = (*self.programs.readable, *self.installations)
        return [at for at in found if not any(each.is_relative_to(Path(at).resolve()) for each in hidden)]

    def variables(self, *, offline: bool) -> dict[str, str]:
        """What the environment is for those who work in it; `offline` for use, otherwise for making it."""
        store = self.directory / STORE
        found: dict[str, str] = {}
        if self.recipe.python is not None:
            venv = str(self.directory / VENV)
            found |= {"VIRTUAL_ENV": venv, "UV_PROJECT_ENVIRONMENT": venv, "PDM_IGNORE_SAVED_PYTHON": "1"}
            found |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "POETRY_VIRTUALENVS_CREATE": "false"}
            # An author who runs the tests must not leave files of theirs in the change.
            found |= {"UV_OFFLINE": "1", "UV_NO_SYNC": "1", "PYTHONDONTWRITEBYTECODE": "1"} if offline else {}
        if "node" in self.recipe.stack:
            found |= {
                "npm_config_update_notifier": "false",
                "npm_config_fund": "false",
                "npm_config_audit": "false",
                "COREPACK_HOME": str(store / "corepack"),
                "COREPACK_ENABLE_DOWNLOAD_PROMPT": "0",
                # In the checkout, by paths that are relative to it, wherever that is.
                "YARN_ENABLE_GLOBAL_CACHE": "false",
                "YARN_ENABLE_TELEMETRY": "false",
            }
            found |= {"npm_config_offline": "true", "npm_config_cache": "/tmp/npm"} if offline else {}
            found |= {"YARN_ENABLE_NETWORK": "false", "COREPACK_ENABLE_NETWORK": "0"} if offline else {}
        if "rust" in self.recipe.stack:
            found["CARGO_HOME"] = str(store / "cargo")
            rustup = Path(os.environ.get("RUSTUP_HOME") or Path.home() / ".rustup")
            found |= {"RUSTUP_HOME": str(rustup)} if rustup.is_dir() else {}
            found |= {"CARGO_NET_OFFLINE": "true"} if offline else {}
        if "go" in self.recipe.stack:
            found |= {"GOPATH": str(store / "go"), "GOFLAGS": "-modcacherw", "GOTOOLCHAIN": "local"}
            found |= {"GOPROXY": "off", "GOCACHE": "/tmp/go-build"} if offline else {}
        if "java" in self.recipe.stack:
            found["MAVEN_OPTS"] = f"-Dmaven.repo.local={store / 'm2'}"
            found |= {"MAVEN_ARGS": "--offline"} if offline else {}
        return found

    async def set_up(self, argv: Sequence[str]) -> None:
        """One command of the set-up. Managers of packages have a place of their own, and are brought if missing."""
        where, plain = unmoved(tuple(argv))
        words = plain[len(_PIP) :]
        if plain[: len(_PIP)] == _PIP and words and PYTHON_MANAGERS.issuperset(words):
            await self._bring_python_managers(words)
            return
        if plain[0] in PYTHON_MANAGERS and shutil.which(plain[0], path=self._path) is None:
            await self._bring_python_managers(plain[:1])
        elif plain[0] in NODE_MANAGERS:
            await self._bring_node_manager(plain[0], SourceTree(self._tree(where)))
        finished = await self._run(argv)
        while not finished.ok and plain[0] in ("npm", *NODE_MANAGERS):
            done = make_do(_output(finished), self._tree(where) / "package.json")
            if done is None:
                break
            self.notes.append(done)
            finished = await self._run(argv)
        if finished.ok:
            return
        other = weaker(plain, SourceTree(self._tree(where)).start(f"{plain[0]}.lock", _LARGEST_LOCK))
        if other is None or finished.stopped is not None:
            raise self._failed(argv, finished)
        self.notes.append(f"`{' '.join(argv)}` failed, so it was done in parts: {_last(finished)}")
        for each in other.needed:
            await self.set_up(inside(where, each))
        for each in other.wished:
            await self.wish(inside(where, each))

    async def _bring_python_managers(self, names: Sequence[str]) -> None:
        tools = self.directory / TOOLS
        if not (tools / "bin").exists() and self.recipe.python is not None:
            await self.need([self.recipe.python.program, "-I", "-m", "venv", str(tools)])
        await self.need([str(tools / "bin" / "python"), *_PIP[1:], *map(python_package, names)])

    async def _bring_node_manager(self, name: str, tree: SourceTree) -> None:
        """The version that the project asks for; where it asks for none, the one of this machine will do."""
        package = manager_package(name, tree)
        is_here = shutil.which(name, path=self._path) is not None
        argv = ["npm", "install", "--global", "--prefix", str(self.directory / NODE_TOOLS), package]
        if (is_here and package == name) or tuple(argv) in self.commands:
            return
        await (self.wish(argv) if is_here else self.need(argv))

    def _tree(self, where: str) -> Path:
        return Path(os.path.normpath(self.directory.resolve() / TREE / where))

    async def need(self, argv: Sequence[str]) -> None:
        finished = await self._run(argv)
        if not finished.ok:
            raise self._failed(argv, finished)

    async def wish(self, argv: Sequence[str]) -> None:
        finished = await self._run(argv)
        if not finished.ok:
            self.notes.append(f"`{' '.join(argv)}` failed and was done without: {_last(finished)}")

    async def bring(self, modules: Mapping[str, str], *, needed: bool) -> None:
        """Install the distributions of those modules that are missing."""
        if not modules:
            return
        python = str(self.directory / VENV / "bin" / "python")
        asked = await self._run([python, "-c", _MISSING, *modules], quiet=True)
        missing = json.loads(asked.stdout) if asked.ok else []
        names = sorted({modules[each] for each in missing})
        if names and needed:
            await self.need([python, *_PIP[1:], *names])
        elif names:
            await self.wish([python, *_PIP[1:], *names])

    @property
    def _path(self) -> str:
        return ":".join([*self.places, "/usr/local/bin:/usr/bin:/bin"])

    async def _run(self, argv: Sequence[str], *, quiet: bool = False) -> Finished:
        if not quiet:
            self.commands.append(tuple(argv))
            self.tell(" ".join(argv))
        temporary = str(self.directory / "tmp")
        variables = {
            **source_variables(_with_user_settings(os.environ), *_PASSED_ON),
            **self.variables(offline=False),
            "PATH": self._path,
            "HOME": temporary,
            "TMPDIR": temporary,
            "LANG": "C.UTF-8",
            "CI": "true",
            "npm_config_cache": f"{temporary}/npm",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_NO_INPUT": "1",
            # The checkout belongs to whoever runs this, whatever the sandbox makes of users.
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        readable = (*named_files(variables), *map(Path, self.readable))
        policy = Policy(
            network=True,
            readable=tuple(
                path for path in dict.fromkeys(readable) if not path.is_relative_to(self.directory)
            ),
            writable=tuple(self.directory / name for name in (TREE, *_WRITTEN)),
            environment=variables,
        )
        bounds = Bounds(
            wall_seconds=max(0.1, self.until - time.monotonic()),
            memory_bytes=8 * _GIB,
            processes=1024,
            output_bytes=16 * 1024 * 1024,
            file_bytes=None,
            look_seconds=0.1,
        )
        try:
            async with start(argv, cwd=self.directory / TREE, bounds=bounds, policy=policy) as running:
                return await self._heard(running)
        except CannotStart as error:
            raise SetupFailed(
                argv, "cannot be run", str(error), hint=self._hint(how_to_install(argv[0]))
            ) from error
        except (IsolationRefused, Broken) as error:
            raise SetupFailed(argv, "cannot be run", str(error), hint=error.hint) from error

    async def _heard(self, running: Running) -> Finished:
        """Its end; until then what it prints is passed on now and then."""
        ending = asyncio.ensure_future(running.wait())
        said: tuple[str, ...] = ("", "")
        try:
            while not (await asyncio.wait({ending}, timeout=_HEAR_SECONDS))[0]:
                before, said = said, tuple(map(_last_line, (running.stdout_tail, running.stderr_tail)))
                for line in [now for was, now in zip(before, said, strict=True) if now != was]:
                    self.hear(line)
        finally:
            ending.cancel()
        return ending.result()

    def _failed(self, argv: Sequence[str], finished: Finished) -> SetupFailed:
        said = _output(finished)
        if finished.stopped is Stopped.WALL:
            hint = "raise projects.setup_seconds"
            return SetupFailed(argv, f"took longer than {self.seconds:g} s", said, hint=hint)
        program, *words = unmoved(tuple(argv))[1]
        reach = how_to_reach(Path(words[0]).name if program == "sh" and words else program, said)
        return SetupFailed(
            argv, finished.problem or "failed", said, hint=self._hint(reach or "try it in a checkout")
        )

    def _hint(self, first: str) -> str:
        lacking = missing_packages(self.recipe.system_packages)
        change = f"{first}, or change the set-up: ratchet project setup PROJECT --edit"
        return change if lacking is None else f"{lacking}; or {change}"


def _output(finished: Finished) -> str:
    return decoded(finished.stdout + b"\n" + finished.stderr)


def _last_line(output: bytes) -> str:
    return last_line(decoded(output))[:300]


def _last(finished: Finished) -> str:
    lines = [
        line for line in _output(finished).strip().splitlines() if "complete log of this run" not in line
    ]
    errors = [line for line in lines if re.match(r"\s*(?:error|npm (?:error|ERR))", line, re.IGNORECASE)]
    return ((errors or lines or [finished.problem or "it failed"])[-1]).strip()[:300]


def _with_user_settings(ours: Mapping[str, str]) -> dict[str, str]:
    """Our variables, with what the user's files say of where packages come from: the sandbox's home has none."""
    home = Path(ours.get("HOME") or "/")
    places = (home / ".config" / "pip" / "pip.conf", home / ".pip" / "pip.conf")
    found = next((path for path in places if path.is_file()), None)
    registry = _npm_registry(home / ".npmrc")
    return {
        **({} if found is None else {"PIP_CONFIG_FILE": str(found)}),
        **(
            {}
            if registry is None
            else {"npm_config_registry": registry, "YARN_NPM_REGISTRY_SERVER": registry}
        ),
        **ours,
    }


def _npm_registry(settings: Path) -> str | None:
    """The address alone: the tokens beside it stay where they are."""
    with contextlib.suppress(OSError):
        found = re.search(
            r"^\s*registry\s*=\s*[\"']?(https?://[^\s\"']+)",
            decoded(settings.read_bytes()),
            re.MULTILINE,
        )
        return None if found is None else found[1]
    return None


def _copy_cargo_settings(target: Path) -> None:
    """Where Cargo fetches from; its tokens are in another file."""
    source = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "config.toml"
    if source.is_file():
        target.mkdir(parents=True)
        shutil.copyfile(source, target / source.name)


def _check_out(repository: Path, commit: str, tree: Path) -> None:
    """The project at `commit`, in a repository of its own. Runs no hook and no filter.

    Some packages know their version by the tags before a commit, so these are there, and every commit on the way to
    them, without its files.
    """
    found = find_repository(repository, find_git())
    _git(tree.parent, "init", "--quiet", f"--object-format={found.algorithm}", str(tree))
    tags = found.git.run(
        "for-each-ref", f"--merged={commit}", "--format=%(objectname) %(refname)", "refs/tags"
    )
    objects = [line.split()[0] for line in tags.splitlines()]
    objects += found.git.run("rev-list", commit).split()
    objects += [
        line.split(b" ", 1)[0]
        for line in found.git.run("rev-list", "--objects", "--no-walk", commit).splitlines()
    ]
    pack = tree / ".git" / "objects" / "pack" / "pack"
    pack.parent.mkdir(parents=True, exist_ok=True)
    # What is packed already is copied as it is: a search for better deltas would take minutes.
    found.git.run("pack-objects", "-q", "--window=0", str(pack), input=b"\n".join(objects) + b"\n")
    (tree / ".git" / "packed-refs").write_bytes(tags)
    if found.shallow:
        shutil.copyfile(found.git.directory / "shallow", tree / ".git" / "shallow")
    _git(tree, "checkout", "--quiet", "--detach", commit)


def _git(directory: Path, *words: str) -> str:
    done = run_git(directory, *words)
    if done.returncode:
        raise SetupFailed(["git", *words], f"ended with exit code {done.returncode}", decoded(done.stderr))
    return decoded(done.stdout)


@dataclass(frozen=True, slots=True)
class _Left:
    """What a set-up left in the checkout, by path."""

    packages: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    caches: list[str] = field(default_factory=list)


def _take_out(directory: Path) -> _Left:
    """Move what the set-up left in the checkout out of it. The checkout itself goes: others are shown in its place."""
    tree = directory / TREE
    said = _git(
        directory,
        *(f"--git-dir={directory / _GIT}", f"--work-tree={tree}"),
        *("status", "--porcelain=v1", "-z", "--ignored=matching", "--untracked-files=normal"),
        "--ignore-submodules=all",  # git would read the settings of each
    )
    left = _Left()
    for entry in filter(None, said.split("\0")):
        mark, path = entry[:2], entry[3:].rstrip("/")
        source = tree / path
        if mark not in ("??", "!!") or _NOT_LEFT & set(Path(path).parts) or path.endswith(".pyc"):
            continue
        is_directory = source.is_dir() and not source.is_symlink()
        if is_directory and (_PACKAGES & set(Path(path).parts) or (source / "pyvenv.cfg").exists()):
            left.packages.append(path)
        else:
            (left.outputs if is_directory else left.files).append(path)
            if mark == "!!" or path.endswith(_BUILT):
                left.ignored.append(path)
        target = directory / LEFT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)
        if is_directory and target.name == "node_modules":
            if (target / CACHE).is_symlink():
                (target / CACHE).unlink()
            (target / CACHE).mkdir(exist_ok=True)
            left.caches.append(f"{path}/{CACHE}")
            left.ignored.extend(left.caches[-1:] if mark == "!!" else ())
    remove_tree(tree)
    tree.mkdir()
    return left


def _imports(directory: Path) -> Iterator[str]:
    """The directories of the checkout that the environment's Python imports from."""
    tree = f"{directory / TREE}"
    for site in (directory / VENV / "lib").glob("python*/site-packages"):
        for file in site.glob("*.pth"):
            for line in _start(file).splitlines():
                if line == tree or line.startswith(f"{tree}/"):
                    yield os.path.relpath(line, tree)
        for file in site.glob("__editable__*_finder.py"):
            for path in re.findall(re.escape(tree) + r"/([^'\"]+)", _start(file)):
                yield os.path.dirname(path) or "."  # noqa: PTH120 - a relative path, as text


def _start(file: Path) -> str:
    """The text of a plain file. What a set-up made may be anything, as a pipe that never ends."""
    if not file.is_file():
        return ""
    with file.open("rb") as opened:
        return decoded(opened.read(_LARGEST_LOCK))


def _unheard(_: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Environments:
    """`facts` are the project's: they have the set-up. `tell` is told each command that is run, `hear` its output.

    A set-up runs code of its commit, which may leave anything in what it makes. So a commit other than `trusted` shares
    the environment that `trusted` makes, or has one of its own, which no other commit is checked in. Without `trusted`
    all commits are.
    """

    home: Path
    repository: Repository
    facts: Mapping[str, Any]
    settings: Projects
    trusted: str | None = None
    tell: Tell = field(default=_unheard, compare=False)
    hear: Tell = field(default=_unheard, compare=False)

    def recipe(self, commit: str) -> Recipe | None:
        """What makes the environment for a commit; nothing for a project that needs none."""
        return recipe_of(self.repository, commit, self.facts)

    def find(self, commit: str) -> Environment | None:
        """The environment for a commit, if there is one already."""
        recipe, _ = self._source(commit)
        found = None if recipe is None else find(self._link(recipe))
        return None if found is None else Environment.load(found)

    def forget(self, commit: str) -> None:
        """Have the environment for a commit made again when it is next needed."""
        recipe, _ = self._source(commit)
        if recipe is not None:
            forget(self._link(recipe))

    def _source(self, commit: str) -> tuple[Recipe | None, str]:
        """The recipe for a commit, and the commit that it is made from."""
        recipe = self.recipe(commit)
        if recipe is None or self.trusted is None or self.trusted == commit:
            return recipe, commit
        with contextlib.suppress(Misuse):
            shared = self.recipe(self.trusted)
            if shared is not None and shared.key == recipe.key:
                return shared, self.trusted
        files = sorted((path, entry.hash) for path, entry in self.repository.list_files(commit).items())
        own = hashlib.sha256(json.dumps([recipe.key, files]).encode()).hexdigest()[:32]
        return replace(recipe, key=own), commit

    async def of(self, commit: str) -> Environment | None:
        """The environment for a commit, made now if there is none; nothing for a project that needs none.

        Raises `SetupFailed` with what the command that failed has printed.
        """
        recipe, source = await asyncio.to_thread(self._source, commit)
        if recipe is None:
            return None

        async def make(directory: Path) -> None:
            seconds = self.settings.setup_seconds
            told = {"tell": self.tell, "hear": self.hear}
            await build(directory, recipe, self.repository, source, seconds=seconds, **told)

        try:
            directory = await find_or_make(
                self._link(recipe),
                make,
                seconds=self.settings.setup_seconds,
                keep_days=self.settings.environment_days,
            )
        except Busy as busy:
            raise SetupFailed(
                ["ratchet", "project", "setup"],
                "waits",
                str(busy),
                hint="wait for it, or raise projects.setup_seconds",
            ) from busy
        except OSError as error:
            raise SetupFailed(
                ["ratchet", "project", "setup"],
                "cannot write",
                str(error),
                hint="free some space and check the rights of Ratchet's home, then try again",
            ) from error
        return Environment.load(directory)

    def _link(self, recipe: Recipe) -> Path:
        # A set-up is code of its project: what it made is for no other.
        project = hashlib.sha256(os.fsencode(self.repository.path.resolve())).hexdigest()[:8]
        return self.home.resolve() / "environments" / f"{recipe.key}-{project}"
