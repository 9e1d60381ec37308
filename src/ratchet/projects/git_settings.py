"""The configuration of a clone: its remote, and who commits in it."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ratchet.projects.address import read_address
from ratchet.workspaces import find_git
from ratchet.workspaces.discovery import find_repository
from ratchet.workspaces.git import Git

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
        said = self.git.run("config", "--local", "--get", key, fine=(0, 1)).decode(errors="replace")
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
        if value := said.decode(errors="replace").removesuffix("\n"):
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
