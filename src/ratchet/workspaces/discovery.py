"""Finding out what kind of repository lies at a path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.workspaces.errors import NotARepository, RepositoryCorrupt, RepositoryUnwritable
from ratchet.workspaces.git import Git, damaged


@dataclass(frozen=True, slots=True)
class Found:
    """`git` is bound to the directory that holds refs and objects, `own` to that of a linked worktree.

    `files` is a clone's directory of files, `None` for a bare repository.
    """

    git: Git
    own: Git
    objects: Path
    algorithm: str
    shallow: bool
    files: Path | None


def find_repository(path: Path, program: str) -> Found:
    """Look at exactly this path: a clone, a linked worktree or a bare repository. Nothing above it is searched."""
    directory = _git_directory(path)
    git = Git(program, directory)
    try:
        said = git.run(
            "rev-parse",
            "--is-bare-repository",
            "--is-shallow-repository",
            "--show-object-format",
            "--git-common-dir",
            "--git-path",
            "objects",
        )
    except RepositoryCorrupt as error:
        # Git says "not a repository" where HEAD, refs or objects are there and one of them cannot be read.
        raise damaged(path, "its HEAD, refs, objects or config cannot be read") from error
    bare, shallow, algorithm, common, objects = said.decode(errors="surrogateescape").splitlines()
    return Found(
        git=Git(program, (directory / common).resolve()),
        own=git,
        objects=(directory / objects).resolve(),
        algorithm=algorithm,
        shallow=shallow == "true",
        files=None if bare == "true" else path,
    )


def _git_directory(path: Path) -> Path:
    inner = path / ".git"
    try:
        if inner.is_dir():
            return inner
        if inner.is_file():
            word, _, target = inner.read_text(errors="replace").strip().partition(": ")
            if word != "gitdir" or not (path / target).is_dir():
                raise damaged(path, f"{inner} does not lead to a git directory")
            return (path / target).resolve()
        if (path / "objects").is_dir() and (path / "refs").is_dir():
            return path
    except PermissionError as error:
        raise RepositoryUnwritable(
            f"the repository {path} cannot be read: {error.strerror}", hint="see who owns it"
        ) from error
    if not path.exists():
        raise NotARepository(f"{path} does not exist", hint="clone or create the repository first")
    raise NotARepository(
        f"{path} is not a git repository", hint=f"run `git init {path}`, or name the clone itself"
    )
