"""Starter assets: CI files and scripts that really run the checks of a repository, written only where missing."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from ratchet.kernel import RatchetError
from ratchet.projects.discovery import CheckKind, ProjectFacts
from ratchet.projects.discovery.ci import SCRIPTS, workflow_files
from ratchet.projects.discovery.tree import NOTHING, SourceTree, seal
from ratchet.workspaces import Identity, Repository

JOBS: dict[str, tuple[CheckKind, ...]] = {
    "lint": ("lint", "format", "security"),
    "typecheck": ("types",),
    "test": ("test",),
    "build": ("build",),
}
"""The jobs of CI, each with a script of its name, and the kinds of checks that it runs."""

GITHUB_FILE = ".github/workflows/ci.yml"
GITLAB_FILE = ".gitlab-ci.yml"

_IMAGES = {
    "python": "python:3.12",
    "node": "node:22",
    "go": "golang:1",
    "rust": "rust:1",
    "java": "maven:3-eclipse-temurin-21",
}
_MANAGERS = ("pnpm", "yarn", "bun")


def script_path(name: str) -> str:
    return f"{SCRIPTS}/{name}.sh"


def render(facts: ProjectFacts, provider: str | None) -> dict[str, str]:
    """Every asset by its path. A script that the repository has of its own is not among them."""
    scripts = {"bootstrap": _bootstrap(facts), "report": _template("report.sh")}
    scripts |= {name: _check_script(name, kinds, facts) for name, kinds in JOBS.items()}
    texts = {
        script_path(name): seal(text)
        for name, text in scripts.items()
        if not _is_own(facts, script_path(name))
    }
    if provider == "github":
        texts[GITHUB_FILE] = seal(_filled("github-ci.yml", jobs=_jobs("github-job.yml")))
    elif provider == "gitlab":
        texts[GITLAB_FILE] = seal(_gitlab(facts))
    return texts


def required_jobs(facts: ProjectFacts) -> tuple[str, ...]:
    """The jobs that have something to run."""
    return tuple(name for name, kinds in JOBS.items() if any(facts.of_kind(kind) for kind in kinds))


def _is_own(facts: ProjectFacts, path: str) -> bool:
    own = ("bash", path)
    return own in facts.setup or any(check.argv == own for check in facts.checks)


def _check_script(name: str, kinds: Iterable[CheckKind], facts: ProjectFacts) -> str:
    checks = [check for kind in kinds for check in facts.of_kind(kind)]
    if not checks:
        return _filled("skip.sh", nothing=NOTHING, script=name)
    lines = (shlex.join(["check", check.name, *check.argv]) for check in checks)
    return _filled("check.sh", script=name, commands="\n".join(lines))


def _bootstrap(facts: ProjectFacts) -> str:
    """The set-up of the stacks, then the tools of checks that it did not bring."""
    needed = sorted({check.needs for check in (*facts.checks, *facts.network_checks) if check.needs})
    lines = []
    if needed or any(_is_python(argv) for argv in facts.setup):
        lines.append(_template("python.sh"))
    managers = [name for name in _MANAGERS if any(name in argv for argv in facts.setup)]
    if managers:
        lines.append(_template("node.sh"))
    lines += [shlex.join(["need_manager", name]) for name in managers]
    lines += [shlex.join(["run", *argv]) for argv in facts.setup]
    lines += [shlex.join(["need", name, name.replace("-", "_")]) for name in needed]
    return _filled("bootstrap.sh", commands="\n".join(lines) or "printf 'nothing to set up\\n'")


def _is_python(argv: tuple[str, ...]) -> bool:
    return any(word in argv for word in ("python3", "uv", "poetry", "pipenv"))


def _gitlab(facts: ProjectFacts) -> str:
    stacks = [stack for stack in facts.stack if stack in _IMAGES]
    image = _IMAGES[stacks[0]] if stacks else "buildpack-deps:stable"
    note = "An image with bash, curl and what the checks need."
    if len(stacks) > 1:
        note = f"Name an image that has all of {', '.join(stacks)}; this one has {stacks[0]}."
    return _filled("gitlab-ci.yml", image=image, image_note=note, jobs=_jobs("gitlab-job.yml"))


def _jobs(template: str) -> str:
    return "\n".join(_filled(template, script=name) for name in JOBS).rstrip("\n")


def _filled(template: str, **words: str) -> str:
    return _template(template) % words


@cache
def _template(name: str) -> str:
    return files("ratchet.projects").joinpath("templates", name).read_text(encoding="utf-8")


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What opening a directory says of a file or a link in its place.
_IN_THE_WAY = (errno.ENOTDIR, errno.ELOOP)
_WORKFLOWS = ".github/workflows/"
MESSAGE = "chore(ci): add the scripts that check a change"


@dataclass(frozen=True, slots=True)
class WrittenAssets:
    """Paths from the top of the tree: made, there already and left as they are, or behind a link and left alone.

    `required_checks` are what the CI file that was made will report for each change.
    """

    created: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    required_checks: tuple[str, ...] = ()


def asset_files(facts: ProjectFacts, provider: str | None) -> dict[str, bytes]:
    """Every asset for a repository, by its path. Without a provider there is no CI file."""
    return {path: text.encode() for path, text in render(facts, provider).items()}


def write_assets(tree: Path, facts: ProjectFacts, *, provider: str | None) -> WrittenAssets:
    """Write the assets that are missing, scripts executable. Overwrites nothing, and follows no link.

    Raises `RatchetError` where the tree cannot be written.
    """
    created: list[str] = []
    kept: list[str] = []
    refused: list[str] = []
    has_workflows = bool(workflow_files(SourceTree(tree)))
    for path, content in asset_files(facts, provider).items():
        if path == GITHUB_FILE and has_workflows:
            kept.append(path)
            continue
        try:
            (created if _write_new(tree, path, content) else kept).append(path)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise RatchetError(
                    f"{tree / path} cannot be written: {error.strerror}",
                    hint="fix its permissions or its disk",
                ) from error
            refused.append(path)
    named = any(path in created for path in (GITHUB_FILE, GITLAB_FILE))
    return WrittenAssets(tuple(created), tuple(kept), tuple(refused), required_jobs(facts) if named else ())


def commit_assets(
    repository: Repository,
    base: str,
    facts: ProjectFacts,
    provider: str | None,
    *,
    message: str = MESSAGE,
    author: Identity | None = None,
    at: int | None = None,
) -> str | None:
    """A commit on top of `base` with the assets that it lacks; nothing if it has them all. Moves no ref."""
    there = set(repository.list_files(base))
    folders = {path[:cut] for path in there for cut, sign in enumerate(path) if sign == "/"}
    has_workflows = any(path.startswith(_WORKFLOWS) and path.endswith((".yml", ".yaml")) for path in there)
    missing = {
        path: content
        for path, content in asset_files(facts, provider).items()
        if path not in there
        and path not in folders
        and not any(path[:cut] in there for cut, sign in enumerate(path) if sign == "/")
        and not (path == GITHUB_FILE and has_workflows)
    }
    if not missing:
        return None
    programs = [path for path in missing if path.endswith(".sh")]
    return repository.commit_files(
        missing, parent=base, message=message, author=author, at=at, executable=programs
    )


def _write_new(tree: Path, path: str, content: bytes) -> bool:
    """Make a file appear whole; false if something of that name is there."""
    with _folder(tree, path.split("/")[:-1]) as folder:
        name = path.rpartition("/")[2]
        if _exists(folder, name):
            return False
        unfinished = f".{name}.ratchet-new"
        with contextlib.suppress(FileNotFoundError):
            # Left by a process that died here.
            os.unlink(unfinished, dir_fd=folder)
        descriptor = os.open(unfinished, _NEW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                os.fchmod(descriptor, 0o755 if name.endswith(".sh") else 0o644)
            with contextlib.suppress(FileExistsError):
                # Unlike a rename, a link never replaces what somebody made meanwhile.
                os.link(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                return True
            return False
        finally:
            os.unlink(unfinished, dir_fd=folder)


@contextlib.contextmanager
def _folder(tree: Path, parts: list[str]) -> Iterator[int]:
    """A directory of the tree, made where it is missing, and reached without following a link."""
    held = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=held)
            deeper = os.open(part, _FOLDER, dir_fd=held)
            os.close(held)
            held = deeper
        yield held
    finally:
        os.close(held)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
