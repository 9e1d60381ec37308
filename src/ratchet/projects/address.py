"""Addresses of git repositories, names of branches, and where the clones of projects are.

Git takes an address for a command (`ext::`), an argument for an option (`--upload-pack=…`) and a host for one
(`ssh://-oProxyCommand=…`). So an address is understood here first, and nothing is given to git that is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from ratchet.kernel import ConfigError, Conflict, Misuse, RatchetError
from ratchet.ledger.projects import Project
from ratchet.runtime import Runtime


class CloneMissing(Conflict):
    """The repository of a project is not on this machine, and may not or cannot be brought here."""


class RemoteFailed(RatchetError):
    """A remote did not answer, or answered that it will not."""

    http_status = 502


class PushRefused(Conflict):
    """A remote did not take a branch."""


class Unconfirmed(Misuse):
    """Something that cannot be undone was asked for without saying that it is meant."""

    http_status = 400


class SecretsUnreadable(ConfigError):
    """The secrets of projects cannot be read or kept with the key that this process has."""

    http_status = 503


def remote_key(git_url: str) -> str | None:
    """`host/owner/name` for every address of a repository on a server, the path of one on this machine.

    All in small letters, as the forges see them. `None` for what is no address.
    """
    try:
        address = read_address(git_url)
    except Misuse:
        return None
    if address.transport == "file":
        return address.path
    return f"{address.host}/{address.path.removesuffix('.git')}".lower()


def over_ssh(git_url: str) -> str:
    """The SSH address of a repository on GitHub that is reached by https; any other address as it is."""
    address = read_address(git_url)
    if address.transport not in ("https", "http") or address.host not in ("github.com", "www.github.com"):
        return git_url
    return f"git@github.com:{address.path.removesuffix('.git')}.git"


Transport = Literal["https", "http", "ssh", "file"]

_LONGEST = 2000
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\]")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# As git has it: no slash before the first colon.
_SCP = re.compile(r"(?:(?P<user>[^@/:]+)@)?(?P<host>\[[^\]/]+\]|[^/:\[\]]+):(?P<path>[^:].*)")
_ALLOWED = "use https://HOST/OWNER/NAME.git, git@HOST:OWNER/NAME.git, file:///PATH or an absolute path"


@dataclass(frozen=True, slots=True)
class GitAddress:
    """`text` is what git is given. `path` has no slash around it, but that of a file is absolute."""

    text: str
    transport: Transport
    host: str
    path: str
    port: int | None = None

    @property
    def name(self) -> str:
        """What a clone of it is called. Never a path, and never hidden."""
        last = PurePosixPath(self.path).name.removesuffix(".git")
        return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip(".-") or "repository"

    @property
    def base(self) -> str:
        """What every address on the same server begins with; for http and https."""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.transport}://{self.host}{port}/"


def read_address(text: str) -> GitAddress:
    """Raises `Misuse` for what is no address of a repository, or one with a password in it, which is not repeated."""
    if not text or len(text) > _LONGEST or not text.isprintable() or text != text.strip():
        raise Misuse("that is not the address of a git repository", hint=_ALLOWED)
    if text.startswith("-") or "::" in text.partition("/")[0]:
        raise Misuse(f"{_shown(text)} is not the address of a git repository", hint=_ALLOWED)
    if "://" in text:
        return _read_url(text)
    if text.startswith(("/", "~")):
        return _file(text, Path(text).expanduser())
    found = _SCP.fullmatch(text)
    if found is None or "@" in found["path"]:  # a password before the host would be taken for a path
        raise Misuse(f"{_shown(text)} is not the address of a git repository", hint=_ALLOWED)
    _check_host(text, found["host"])
    _check_user(text, found["user"])
    return GitAddress(text, "ssh", found["host"].lower(), _inner(text, found["path"]))


def _read_url(text: str) -> GitAddress:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise Misuse(f"{_shown(text)} is not the address of a git repository", hint=_ALLOWED) from error
    # Git takes another spelling of a scheme for another program.
    match text.partition("://")[0]:
        case "file":
            if url.netloc not in ("", "localhost") or url.query or url.fragment:
                raise Misuse(f"{_shown(text)} names no file on this machine", hint=_ALLOWED)
            return _file(text, Path(unquote(url.path)))
        case "https" | "http" | "ssh" as scheme:
            return _read_server(text, url, scheme, port)
    raise Misuse(f"{url.scheme[:40]!r} is not a way to reach a repository here", hint=_ALLOWED)


def _read_server(
    text: str, url: SplitResult, scheme: Literal["https", "http", "ssh"], port: int | None
) -> GitAddress:
    if url.query or url.fragment:
        raise Misuse(f"{_shown(text)} has more than a path", hint=_ALLOWED)
    if url.password is not None or (scheme != "ssh" and "@" in url.netloc):
        raise Misuse(
            f"the address at {url.hostname} has a name or a password in it, which would be stored with it",
            hint="leave it out of the address and give it as the secret git_token of the project",
        )
    _check_user(text, url.username)
    host = url.netloc.rpartition("@")[2]
    host = host if port is None else host.rpartition(":")[0]
    _check_host(text, host.rstrip(":"))
    return GitAddress(text, scheme, host.rstrip(":").lower(), _inner(text, unquote(url.path)), port)


def _file(text: str, path: Path) -> GitAddress:
    if not path.is_absolute() or "\0" in str(path):
        raise Misuse(f"{_shown(text)} is not an absolute path", hint=_ALLOWED)
    given = text if text.startswith("file://") else str(path)
    return GitAddress(given, "file", "", str(path.resolve()))


def _inner(text: str, path: str) -> str:
    """The path on a server. One that could be taken for an option or leads upwards is none."""
    plain = path.strip("/")
    parts = plain.split("/")
    if not plain or not plain.isprintable() or plain.startswith("-") or ".." in parts or "" in parts:
        raise Misuse(f"{_shown(text)} names no repository on its server", hint=_ALLOWED)
    return plain


def _check_host(text: str, host: str) -> None:
    if not _HOST.fullmatch(host):
        raise Misuse(f"{_shown(text)} has no proper host", hint=_ALLOWED)


def _check_user(text: str, user: str | None) -> None:
    if user is not None and not _USER.fullmatch(user):
        raise Misuse(f"{_shown(text)} has no proper user", hint=_ALLOWED)


def _shown(text: str) -> str:
    """An address for a message: whoever is named in it stays out, since that may be a token."""
    return repr(re.sub(r"(://|^)[^/@]*@", r"\1", text)[:200])


# What lies beside a clone: the workspaces of its protocols, and what is under way.
_WORKTREES, _UNDER_WAY = _BESIDE = ("worktrees", "under-way")


def own_place(runtime: Runtime, project_id: int) -> Path:
    """The directory of one project: its clone, and the workspaces of its protocols."""
    return runtime.home / Path(runtime.settings.projects.root).expanduser() / str(project_id)


def worktrees_of(runtime: Runtime, project_id: int) -> Path:
    return own_place(runtime, project_id) / _WORKTREES


def corner_of(runtime: Runtime, project_id: int) -> Path:
    """Where clones and transfers lie until they are finished."""
    return own_place(runtime, project_id) / _UNDER_WAY


def clone_place(runtime: Runtime, project: Project) -> Path | None:
    """Where a clone of the project belongs on this machine; `None` for one that has no address to clone."""
    if project.git_url is None:
        return None
    name = read_address(project.git_url).name
    return own_place(runtime, project.id) / (f"{name}.repository" if name in _BESIDE else name)
