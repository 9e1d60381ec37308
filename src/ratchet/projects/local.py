"""The repository that somebody stands in: its top, its base branch, and the project that it is."""

from __future__ import annotations

from pathlib import Path

from ratchet.kernel import Misuse
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, find_project, projects_at, projects_of_remote
from ratchet.projects.git_settings import GitSettings, usable_origin
from ratchet.projects.remote import remote_key
from ratchet.workspaces import find_git
from ratchet.workspaces.discovery import Found, find_repository
from ratchet.workspaces.uncommitted import uncommitted

_USUAL = ("main", "master")
_LONGEST = 100
_SHOWN = 3


def find_top(directory: Path) -> Path:
    """The top of the repository that a directory is in; of a linked worktree, that of its repository.

    Raises `Misuse` outside of one.
    """
    place = _checkout(directory)
    common = find_repository(place, find_git()).git.directory
    return common.parent if common.name == ".git" else place


def left_out(directory: Path) -> str | None:
    """What of the checkout that a directory is in is no part of a change that starts from a branch, in words."""
    found = find_repository(_checkout(directory), find_git())
    head = found.own.run("rev-parse", "--verify", "--quiet", "HEAD", fine=(0, 1)).decode().strip() or None
    paths = uncommitted(found.own, found.files, head, found.algorithm) if found.files else []
    shown = ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
    said = [
        *([f"HEAD is detached here, at {head[:12]}"] if head and _symbolic(found, "HEAD") is None else []),
        *([f"uncommitted changes are no part of it ({shown})"] if paths else []),
    ]
    return "; ".join(said) or None


def _checkout(directory: Path) -> Path:
    for place in (directory, *directory.parents):
        if (place / ".git").exists():
            return place
    raise Misuse(
        f"{directory} is in no git repository",
        hint="go to one, or name a project with --project; `ratchet project add` adds one by its address",
    )


def base_branch(top: Path) -> str:
    """What changes of a repository start from: what its origin says, else main or master, else where it stands.

    Raises `Misuse` while it has no commit.
    """
    found = find_repository(top, find_git())
    default = _symbolic(found, "refs/remotes/origin/HEAD")
    if default is not None:
        return default.removeprefix("refs/remotes/origin/")
    for name in _USUAL:
        if _has(found, f"refs/heads/{name}"):
            return name
    standing = _symbolic(found, "HEAD")
    if standing is None or not _has(found, standing):
        raise Misuse(f"{top} has no commit on a branch yet", hint="commit something first, or name --base")
    return standing.removeprefix("refs/heads/")


def project_at(tx: Transaction, top: Path) -> Project | None:
    """The project of the repository there: the one that is worked on in that place, else the one with its origin.

    Raises `Misuse` when there are several.
    """
    origin = GitSettings.of(top).origin
    key = None if origin is None else _key(origin, top)
    found = projects_at(tx, str(top)) or ([] if key is None else projects_of_remote(tx, key))
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise Misuse(f"{top} is the repository of several projects", hint=f"add --project: {names}")
    return found[0] if found else None


def free_name(tx: Transaction, wanted: str) -> str:
    """A name for a new project, with a number behind it if it is taken."""
    plain = "".join(sign for sign in wanted if sign.isprintable()).strip()[:_LONGEST] or "project"
    number, name = 1, plain
    while find_project(tx, name) is not None:
        number += 1
        name = f"{plain}-{number}"
    return name


def _key(origin: str, top: Path) -> str | None:
    try:
        return remote_key(usable_origin(origin, top))
    except Misuse:
        return None


def _symbolic(found: Found, ref: str) -> str | None:
    said = found.own.run("symbolic-ref", "--quiet", ref, fine=(0, 1)).decode(errors="replace").strip()
    return said or None


def _has(found: Found, ref: str) -> bool:
    return found.git.asks("show-ref", "--verify", "--quiet", ref)
