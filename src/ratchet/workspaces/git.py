"""The git command, run so that nothing but its arguments can influence it.

A repository may be hostile: a session with write access to it can plant hooks, filters, a file system monitor or a
remote whose address is a command. So git runs here without the user's configuration and environment, with hooks and
transports off, and only plumbing commands are used, which run no filters and call no external diff.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import Missing, RatchetError
from ratchet.workspaces.errors import (
    GitFailed,
    NotARepository,
    RepositoryCorrupt,
    RepositoryLocked,
    RepositoryShallow,
    RepositoryUnwritable,
)

LEAST_GIT = (2, 31)
_SECONDS = 120.0
_LOCK_MILLISECONDS = 2000
_FSCK = "look with `git fsck --full`, then restore the repository or clone it anew"

_CONFIGURATION = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    # Added to what git waits for anyway: refs are told of by rows.
    "core.fsync": "reference",
    "core.filesRefLockTimeout": str(_LOCK_MILLISECONDS),
    "core.packedRefsTimeout": str(_LOCK_MILLISECONDS),
    "core.quotePath": "false",
    "log.showSignature": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "advice.detachedHead": "false",
}
_ENVIRONMENT = {
    "PATH": os.defpath,
    "LC_ALL": "C",
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": f"{os.devnull}/none",  # an empty one would be complained about
    "GIT_OPTIONAL_LOCKS": "0",
    # Refs are written as files here, without asking git.
    "GIT_DEFAULT_REF_FORMAT": "files",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    # A partial clone would fetch what it lacks; no transport has this name, so none is allowed.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_COUNT": str(len(_CONFIGURATION)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_CONFIGURATION)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_CONFIGURATION.values())},
}


@dataclass(frozen=True, slots=True)
class Git:
    """A git program, bound to one git directory."""

    program: str
    directory: Path

    def environment(self, **more: str) -> dict[str, str]:
        return {**_ENVIRONMENT, "GIT_DIR": str(self.directory), **more}

    def run(
        self,
        *words: str,
        input: bytes = b"",
        fine: tuple[int, ...] = (0,),
        cwd: Path | None = None,
        **environment: str,
    ) -> bytes:
        """What the command prints. Raises a typed error unless it ends with a code in `fine`."""
        done = self._finished(words, input, cwd, environment)
        if done.returncode not in fine:
            raise failure(done.stderr, self.directory, words[0])
        return done.stdout

    def asks(self, *words: str) -> bool:
        """Whether the command ends with 0 rather than 1. Raises a typed error for any other code."""
        done = self._finished(words, b"", None, {})
        if done.returncode not in (0, 1):
            raise failure(done.stderr, self.directory, words[0])
        return done.returncode == 0

    def _finished(
        self, words: tuple[str, ...], input: bytes, cwd: Path | None, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [self.program, *words],
                input=input,
                capture_output=True,
                check=False,
                cwd=cwd or self.directory,
                env=self.environment(**environment),
                timeout=_SECONDS,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise GitFailed(f"git {words[0]} did not end within {_SECONDS:g} s in {self.directory}") from None
        except OSError as error:
            raise not_runnable(self, error) from error


def find_git(path: str | None = None) -> str:
    """The git program on `path` (by default the PATH). Raises `Missing` when there is none, or an old one."""
    mend = f"install git {'.'.join(map(str, LEAST_GIT))} or newer with the package manager of your system"
    program = shutil.which("git", path=path)
    if program is None:
        raise Missing("git was not found on the PATH", hint=mend)
    version = _version(program, Path(program).stat().st_mtime_ns)
    if version < LEAST_GIT:
        raise Missing(
            f"git {'.'.join(map(str, version)) or 'of unknown version'} at {program} is too old", hint=mend
        )
    return program


@functools.cache
def _version(program: str, _mtime: int) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, env=_ENVIRONMENT, timeout=10
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"git at {program} cannot be run: {error}", hint="install git anew") from error
    found = re.search(r"(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else ()


def not_runnable(git: Git, error: OSError) -> RatchetError:
    """Why a git process could not be started: the directory is gone, or the program is."""
    if not git.directory.is_dir():
        return NotARepository(
            f"the repository {git.directory} is gone", hint="restore it or name another one"
        )
    return Missing(f"git at {git.program} cannot be run: {error.strerror}", hint="install git anew")


_LOCKED = re.compile(r"Unable to create '([^']+\.lock)'")
_UNWRITABLE = ("No space left", "Read-only file system", "Permission denied", "insufficient permission")
_CORRUPT = (
    "corrupt",
    "is empty",
    "inflate",
    "unable to unpack",
    "unable to read",
    "unable to stream",
    "bad object",
    "bad tree",
    "bad config",
    "bad signature",
    "hash mismatch",
    "does not match",
    "not a git repository",
    "broken",
    "index file smaller",
)


def failure(stderr: bytes, directory: Path, command: str) -> RatchetError:
    """The typed error that a message of git stands for."""
    said = stderr.decode(errors="replace").strip()
    lines = said.splitlines()
    first = next(
        (line for line in lines if line.startswith(("fatal: ", "error: "))),
        (lines or ["git said nothing"])[0],
    )
    lock = _LOCKED.search(said)
    if lock is not None and "File exists" in said:
        return RepositoryLocked(
            f"{lock[1]} is held by another git process, or was left by one that died",
            hint="if no git process uses the repository, delete that file",
        )
    if any(word in said for word in _UNWRITABLE):
        return RepositoryUnwritable(
            f"git {command} cannot write in {directory}: {first}",
            hint="free some space or make the directory writable, then try again",
        )
    if "transport" in said and "not allowed" in said:
        return RepositoryShallow(
            f"{directory} is a partial clone without all files, and nothing is fetched here",
            hint="clone it anew without --filter",
        )
    if any(word in said for word in _CORRUPT):
        return RepositoryCorrupt(f"the repository {directory} is damaged: {first}", hint=_FSCK)
    return GitFailed(f"git {command} failed in {directory}: {first}")


def damaged(directory: Path, what: str) -> RepositoryCorrupt:
    return RepositoryCorrupt(f"the repository {directory} is damaged: {what}", hint=_FSCK)
