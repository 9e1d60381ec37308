"""The repository around the current directory: its top, base branch, configuration, and project."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ratchet.kernel import Misuse, decoded
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, find_project, projects_at, projects_of_remote
from ratchet.projects.address import read_address, remote_key
from ratchet.workspaces import find_git
from ratchet.workspaces.git import Git
from ratchet.workspaces.repository import FoundRepository, find_repository, uncommitted

_REMOTE = "remote.origin.url"


@dataclass(frozen=True, slots=True)
class GitSettings:
    """The configuration file of one repository, read and written by a git that obeys nothing in it."""

    path: Path
    git: Git

    @classmethod
    def of(cls, path: Path) -> GitSettings:
        """Raises `NotARepository` or `RepositoryCorrupt`."""
        return cls(path, find_repository(path, find_git()).git)

    @property
    def origin(self) -> str | None:
        return self._get(_REMOTE)

    @property
    def identity(self) -> dict[str, str] | None:
        name, email = self._get("user.name"), self._get("user.email")
        return None if not name or not email else {"name": name, "email": email}

    def set_origin(self, url: str) -> None:
        self._set(_REMOTE, url)
        if self._get("remote.origin.fetch") is None:
            self._set("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")

    def set_identity(self, *, name: str | None, email: str | None) -> None:
        for key, value in (("user.name", name), ("user.email", email)):
            if value is not None:
                self._set(key, value)

    def _get(self, key: str) -> str | None:
        said = decoded(self.git.run("config", "--local", "--get", key, fine=(0, 1)))
        return said.removesuffix("\n") or None

    def _set(self, key: str, value: str) -> None:
        if self._get(key) != value:
            self.git.run("config", "--local", "--replace-all", key, value)


def global_identity(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Who the user's own configuration of git names, for a repository that names nobody. Nothing else of it is read."""
    home = environment.get("HOME", "")
    usual = (
        Path(home, ".gitconfig"),
        Path(environment.get("XDG_CONFIG_HOME") or f"{home}/.config", "git/config"),
    )
    named = environment.get("GIT_CONFIG_GLOBAL")
    files = [each for each in ((Path(named),) if named else usual) if each.is_file()]
    found: dict[str, str] = {}
    for key, file in itertools.product(("name", "email"), files):
        # Outside of every repository; and without --includes a file leads to no other.
        said = Git(find_git(), Path("/")).run(
            "config", "--file", str(file), "--get", f"user.{key}", fine=(0, 1), GIT_DIR=os.devnull
        )
        if value := decoded(said).removesuffix("\n"):
            found.setdefault(key, value)
    return found if len(found) == 2 else None


def usable_origin(origin: str, path: Path) -> str:
    """An origin as it can be kept: without the name and password in it, a relative path made whole.

    Raises `Misuse` for one that is not used here.
    """
    if re.fullmatch(r"\.{1,2}(/.*)?", origin):
        origin = str((path / origin).resolve())
    if has_credentials(origin):
        parts = urlsplit(origin)
        origin = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return read_address(origin).text


def has_credentials(origin: str) -> bool:
    """Whether an address is refused for a name or a password in it."""
    try:
        return origin.startswith(("https://", "http://")) and "@" in urlsplit(origin).netloc
    except ValueError:
        return False


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
        hint="go to one, or name a project; `ratchet project list` shows them, `ratchet project add ADDRESS` adds one",
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
        raise Misuse(
            f"{top} is the repository of several projects",
            hint=f"name one of them: {names}; `ratchet project archive` puts one away",
        )
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


def _symbolic(found: FoundRepository, ref: str) -> str | None:
    said = decoded(found.own.run("symbolic-ref", "--quiet", ref, fine=(0, 1))).strip()
    return said or None


def _has(found: FoundRepository, ref: str) -> bool:
    return found.git.asks("show-ref", "--verify", "--quiet", ref)
